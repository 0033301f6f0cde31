# SPDX-License-Identifier: Apache-2.0
"""Find hosts whose agents are silent, and mark or fence them, as their attachments ask for.

A lease is over if it was not renewed for its length by the database's clock, while that went as
the clock of this process, which is never set, and while reports could have been stored: from the
half of a lease on, each run writes to the rows of the silent hosts.  So neither a database whose
clock jumps, nor one that refuses writes or has lost the last of them, nor an outage of the
database, of the message queue or of all managers fences hosts: each begins leases anew.

Only the rows of silent hosts are read.

While too many hosts are lost, none is fenced.  When they are fewer, the leases of those that are
still silent begin anew, since they may be about to report; but each only once after its last
report, so that no host whose own reports come late protects a dead one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import datetime
import functools
import math
from typing import Final, NamedTuple

from oslo_log import log

from attachd import exception, lost_agents, notifications
from attachd.conf import CONF
from attachd.conf.manager import MIN_LEASE
from attachd.db import host_fences
from attachd.db.agents import host_leases
from attachd.db.agents.host_leases import HostLease, Silence
from attachd.linux.boot import boot_clock
from attachd.lost_agents import Action, Rule
from attachd.manager import fenced_hosts
from attachd.manager.agents import registry_check
from attachd.manager.agents.database_clock import DatabaseClock
from attachd.manager.agents.fence_limiter import LOST_AFTER, FenceLimiter
from attachd.periodics import PeriodicThread
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

INTERVAL: Final = 3.0
FAST_INTERVAL: Final = 0.5
"""Seconds between two runs, without and with a lease that may end."""
MAX_PAUSE: Final = MIN_LEASE / 2
"""Seconds between two runs after which all leases begin anew."""
PROBE_TIMEOUT: Final = 1 / 6
"""The share of the shortest lease in which all managers have to answer a probe."""
MAX_PROBE_TIMEOUT: Final = 4.0
"""Seconds in which they have to answer at most: less than MAX_PAUSE."""
PROBED_HOSTS: Final = 10
"""The number of hosts to whose rows is written after a failure, until that succeeds."""
RECHECK: Final = 60
"""Seconds after which a silent host, about which nothing is to be done, is read again."""


class _Renewal(NamedTuple):
    """The last renewal of a silent host's lease, and since when, by our clock, it is the last."""

    heartbeat_at: datetime.datetime
    since: float


class _Run(NamedTuple):
    """When a run was, by our clock and by that of the database."""

    started_at: float
    database_now: datetime.datetime


class LostAgents(PeriodicThread):
    """The search for lost agents in one process; every manager process has one.

    :param record_silence: takes the ids of the managers that have not answered a probe
    """

    def __init__(
        self, record_silence: Callable[[Collection[str]], object] = lambda _ids: None
    ) -> None:
        super().__init__("lost-agents", self.run_once, self.interval, self._handle_failure)
        self._renewals: dict[str, _Renewal] = {}
        self._prolonged: dict[str, datetime.datetime] = {}
        self._last_run: _Run | None = None
        self._database_clock = DatabaseClock()
        self._pause = INTERVAL
        self._is_failing = False
        self._limiter = FenceLimiter()
        self._record_silence = record_silence

    def interval(self) -> float:
        """Return the seconds between two runs."""
        return self._pause

    def _handle_failure(self, error: Exception) -> None:
        """Begin all leases anew: reports may not have been stored."""
        self._begin_anew()
        if not self._is_failing:
            unforeseen = not isinstance(error, exception.Unavailable)
            LOG.error(
                "The search for lost agents failed, trying again: %s",
                error,
                exc_info=error if unforeseen else None,
            )
        self._is_failing = True

    def run_once(self) -> None:
        """Mark or fence each host whose lease is over.

        :raises Unavailable: the database or the message queue does not answer
        """
        silence = host_leases.read_silence()
        silent = self._find_ages(silence)
        rules = host_leases.list_rules([host_lease.host for host_lease, _age in silent])
        has_fallen = self._limiter.update(_list_lost(silent, rules))
        is_urgent = silence.any_leased and not self._limiter.is_withholding
        self._pause = FAST_INTERVAL if is_urgent else INTERVAL
        self._check_reports(silent, rules)
        if has_fallen:
            self._prolong(silence.host_leases)
            return
        host_leases.postpone(
            [item.host for item, _age in silent if math.isinf(_limit(item, rules))], RECHECK
        )
        withheld = [
            host_lease.host
            for host_lease, age in silent
            if not self._end_lease(host_lease, age, rules.get(host_lease.host, ()))
        ]
        self._limiter.alarm(withheld)
        self._is_failing = False

    def _begin_anew(self) -> None:
        self._renewals.clear()
        self._last_run = None
        self._database_clock.reset()

    def _prolong(self, silent: Collection[HostLease]) -> None:
        """Begin the leases of silent hosts anew, each once after the last report of its host."""
        former = {
            host_lease.host: host_lease.heartbeat_at
            for host_lease in silent
            if self._prolonged.get(host_lease.host) == host_lease.heartbeat_at
        }
        added = {
            host_lease.host: host_lease.heartbeat_at
            for host_lease in silent
            if host_lease.host not in former
        }
        self._prolonged = former | added
        now = boot_clock()
        for host in added:
            self._renewals[host] = self._renewals[host]._replace(since=now)
        if added:
            LOG.warning(
                "Fewer hosts are lost than may be: the leases of %s begin anew",
                ", ".join(sorted(added)),
            )

    def _check_reports(
        self, silent: Iterable[tuple[HostLease, float]], rules: Mapping[str, list[Rule]]
    ) -> None:
        """Check, if a lease may end soon, that reports could have been stored.

        :raises Unavailable: they could not
        """
        ending = [
            host_lease.host for host_lease, age in silent if age > _limit(host_lease, rules) / 2
        ]
        if self._is_failing:  # Until reports can be stored again.
            ending = ending or host_leases.list_some(PROBED_HOSTS)
        if ending:
            host_leases.check_writable(ending)
            shortest = host_leases.find_shortest() or MIN_LEASE
            timeout = min(shortest * PROBE_TIMEOUT, MAX_PROBE_TIMEOUT)
            try:
                registry_check.check(timeout)
            except registry_check.SilentManagers as error:
                self._record_silence(error.ids)
                raise
            self._record_silence(())
        assert self._last_run is not None
        _check_pause(self._last_run.started_at)

    def _find_ages(self, silence: Silence) -> list[tuple[HostLease, float]]:
        """Return the leases of silent hosts, and for how many seconds each was not renewed.

        A renewal that is older than the last run, which has not read it, is not believed: the
        database has lost a later one.
        """
        now, last_run, renewals = boot_clock(), self._last_run, {}
        if last_run is None or now - last_run.started_at > MAX_PAUSE:
            # This process, or its machine, may have been suspended, and reports wait for it.
            self._begin_anew()
            last_run = None
        self._database_clock.compare(silence.now, now)
        for host_lease in silence.host_leases:
            last = self._renewals.get(host_lease.host)
            if last is None or last.heartbeat_at != host_lease.heartbeat_at:
                since = self._database_clock.get_time(host_lease.heartbeat_at)
                if last_run is not None and host_lease.silent_at <= last_run.database_now:
                    since = max(since, last_run.started_at)
                last = _Renewal(host_lease.heartbeat_at, since)
            renewals[host_lease.host] = last
        self._renewals, self._last_run = renewals, _Run(now, silence.now)
        return [
            (item, min(item.age, now - renewals[item.host].since)) for item in silence.host_leases
        ]

    def _end_lease(self, host_lease: HostLease, age: float, rules: Iterable[Rule]) -> bool:
        """Mark or fence a host if its lease is over; return False if its fence is withheld."""
        rules = [*rules]
        is_to_be_fenced = _is_over(age, get_fence_limit(host_lease, rules))
        if is_to_be_fenced and not self._limiter.is_withholding and _fence(host_lease):
            return True
        if host_lease.lost_action is None and (
            is_to_be_fenced or _is_over(age, lost_agents.get_timeout(rules, Action.MARK))
        ):
            _mark(host_lease)
        return not is_to_be_fenced


def _list_lost(
    silent: Iterable[tuple[HostLease, float]], rules: Mapping[str, list[Rule]]
) -> list[HostLease]:
    """Return the leases of hosts that count as lost, of those that may be fenced."""
    limits = (
        (host_lease, age, get_fence_limit(host_lease, rules.get(host_lease.host, ())))
        for host_lease, age in silent
    )
    return [
        host_lease
        for host_lease, age, limit in limits
        if limit is not None and age >= limit * LOST_AFTER
    ]


def get_fence_limit(host_lease: HostLease, rules: Iterable[Rule]) -> int | None:
    """Return after how many seconds without a heartbeat a host is fenced; None: never.

    Not before the end of the lease that its agent knows: by then it has stopped writers.  An
    agent that knows of no lease reports less often.
    """
    timeout = lost_agents.get_timeout(rules, Action.FENCE)
    if timeout is None:
        return None
    return max(timeout, host_lease.length or CONF.agent.down_time)


def _limit(host_lease: HostLease, rules: Mapping[str, list[Rule]]) -> float:
    """Return the number of seconds until the next action; infinity if none is left."""
    of_host = rules.get(host_lease.host, ())
    limits = [get_fence_limit(host_lease, of_host)]
    if host_lease.lost_action is None:
        limits.append(lost_agents.get_timeout(of_host, Action.MARK))
    return min((float(limit) for limit in limits if limit is not None), default=float("inf"))


def _is_over(age: float, limit: int | None) -> bool:
    return limit is not None and age >= limit


def _mark(host_lease: HostLease) -> None:
    if not host_leases.mark(host_lease):
        return
    LOG.warning(
        "Host %s: its agent is lost since %s UTC", host_lease.host, host_lease.heartbeat_at
    )
    metrics.count(metrics.LOST_AGENTS, Action.MARK.value)
    notifications.host("lost", host_lease.host, describe(host_lease))


def describe(host_lease: HostLease) -> notifications.HostStep:
    """Return the fields of a notification about a host that is not fenced."""
    reason = f"agent lost since {host_lease.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    return notifications.HostStep(reason=reason)


def _check_pause(since: float) -> None:
    """Check that a step was not so long that reports may have waited as well.

    :raises Unavailable: it was
    """
    if boot_clock() - since > MAX_PAUSE:
        raise exception.Unavailable(
            reason=f"The database or the message queue took more than {MAX_PAUSE:.0f} s."
        )


def _fence(host_lease: HostLease) -> bool:
    """Fence a host; return False if as many were fenced as may be, and it has to wait."""
    limit = CONF.manager.max_lease_fences_per_minute
    try:
        is_new = host_leases.fence(
            host_lease, limit, functools.partial(_check_pause, boot_clock())
        )
    except host_leases.TooManyFences:
        return False
    if not is_new:
        return True
    LOG.warning(
        "Host %s: fenced, as its agent is lost since %s", host_lease.host, host_lease.heartbeat_at
    )
    metrics.count(metrics.LOST_AGENTS, Action.FENCE.value)
    fenced = host_fences.find(host_lease.host)
    assert fenced is not None, "a fence is never deleted"
    notifications.fence_start(fenced)
    fenced_hosts.begin_fences(host_fences.list_unfenced([host_lease.host]))
    return True
