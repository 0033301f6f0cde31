# SPDX-License-Identifier: Apache-2.0
"""Withhold fences while so many hosts are lost at the same time that the service may be the cause.

A fault that no check of this process finds, such as of the network of all hosts, must not end the
access of all of them.  So beyond a share of the hosts with leases, a person decides.
"""

from collections.abc import Collection, Iterable
from typing import Final

from oslo_log import log

from attachd.conf import CONF
from attachd.db.agents import host_leases
from attachd.db.agents.host_leases import HostLease
from attachd.linux.boot import boot_clock
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

LOST_AFTER: Final = 1 / 3
"""The share of a lease without a heartbeat after which a host counts as lost."""

RECENT: Final = 600.0
"""Seconds for which a host counts as lost after a fence because of its lease."""

ALARM_INTERVAL: Final = 60.0
"""Seconds between two alarms while fences are withheld."""

WITHHELD: Final = "withheld"
"""The label of the metric in place of an action."""


class FenceLimiter:
    """Counts lost hosts; used by one thread only.

    :ivar is_withholding: whether no host may be fenced because of its lease
    """

    def __init__(self) -> None:
        self.is_withholding = False
        self._lost = 0
        self._allowed = 1
        self._alarmed_at = float("-inf")

    def update(self, silent: Iterable[HostLease]) -> bool:
        """Count the lost hosts; return whether they were too many until now.

        :param silent: of the hosts whose leases are over by LOST_AFTER
        """
        lost = {item.host: item.length for item in host_leases.list_fenced(RECENT)}
        lost |= {item.host: item.length for item in silent}
        self._lost = len(lost)
        # One may be lost in any case: most often no count is needed.
        self._allowed = _count_allowed([*lost.values()]) if len(lost) > 1 else 1
        was_withholding, self.is_withholding = self.is_withholding, self._lost > self._allowed
        return was_withholding and not self.is_withholding

    def alarm(self, hosts: Collection[str]) -> None:
        """Log and count, once a minute, the hosts that are not fenced although leases are over."""
        if not hosts or boot_clock() - self._alarmed_at < ALARM_INTERVAL:
            return
        self._alarmed_at = boot_clock()
        metrics.count(metrics.LOST_AGENTS, WITHHELD, by=len(hosts))
        if self.is_withholding:
            limit = f"{self._lost} hosts are lost, {self._allowed} may be: max_lost_hosts_percent"
        else:
            limit = "as many as may be were fenced in this minute: max_lease_fences_per_minute"
        LOG.error(
            "Hosts %s: not fenced although their leases are over: %s of [manager]. Check the "
            "network of hosts and the message queue. To fence a host that is dead: openstack "
            "volume host fence HOST",
            ", ".join(sorted(hosts)),
            limit,
        )


def _count_allowed(lost: Collection[int | None]) -> int:
    """Return how many hosts may be lost: a share of those that have leases, or are lost.

    :param lost: the lengths of the leases of lost hosts
    """
    leased = host_leases.count_leased() + sum(1 for length in lost if length is None)
    share: int = CONF.manager.max_lost_hosts_percent
    return max(1, leased * share // 100)
