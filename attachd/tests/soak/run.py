# SPDX-License-Identifier: Apache-2.0
"""One run of the soak test, and its result; for the command and for functional/test_soak.py."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import importlib.util
from pathlib import Path
import threading
import time
import unittest

from attachd.tests.fixtures import consistency, initiators
from attachd.tests.soak import clients, copiers, faults, plan
from attachd.tests.soak.calls import Calls
from attachd.tests.soak.deployment import KINDS, SoakDeployment
from attachd.tests.soak.history import History
from attachd.tests.wait import TIMEOUT

DROPPED = 0.3
"""The share of the answers that no client gets."""

_NO_HOPE = 5.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run.

    :ivar seconds: for which clients work and processes are killed
    :ivar attach_timeout: seconds that the API waits for a manager
    :ivar keys: whether POST is repeated with an Idempotency-Key
    :ivar kinds: what is killed, of stage.KINDS
    """

    seconds: float
    seed: int
    clients: int = 16
    attach_timeout: int = 10
    keys: bool = False
    kinds: Sequence[str] = KINDS

    @property
    def ordinary(self) -> int:
        """How many ordinary volumes there are."""
        return max(2, self.clients * 3 // 8)

    @property
    def shared(self) -> int:
        """How many volumes there are that several may attach."""
        return max(1, self.clients // 8)

    @property
    def copiers(self) -> int:
        """How many copy, besides the clients."""
        return max(1, self.clients // 6)


@dataclasses.dataclass
class Report:
    """The result of a run.

    :ivar lines: for people
    :ivar killed: the kind of each kill
    :ivar carried_out: how many intentions were carried out to their end
    :ivar violations: sentences; none: the run passed
    """

    lines: list[str]
    killed: list[str]
    carried_out: int
    violations: list[str]

    def __str__(self) -> str:
        verdict = [f"violations: {len(self.violations)}", *self.violations]
        return "\n".join([*self.lines, *verdict]) + "\n"


def knows_keys() -> bool:
    """Return whether this attachd reads Idempotency-Key."""
    return importlib.util.find_spec("attachd.api.idempotency") is not None


def soak(
    test: unittest.TestCase,
    settings: Settings,
    say: Callable[[str], None] = print,
    logs: Path | None = None,
) -> Report:
    """Run, and check the result.

    The thread that calls this starts all processes.  They end with ``test``.

    :param say: receives progress messages
    :param logs: a directory for the logs of the processes
    """
    say(f"seed {settings.seed}, {settings.clients} clients, {settings.seconds:.0f} s")
    stage = SoakDeployment(test, settings.seed, settings.attach_timeout)
    try:
        return _Run(test, settings, stage, say).whole()
    finally:
        if logs is not None:
            stage.keep_logs(logs)


class _Run:
    def __init__(
        self,
        test: unittest.TestCase,
        settings: Settings,
        stage: SoakDeployment,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._say = say
        self._history = History()
        self._stop = threading.Event()
        stage.make_volumes(settings.ordinary, settings.shared, settings.copiers)
        self._clients: list[clients.Actor] = [
            *(self._client(test, number) for number in range(settings.clients)),
            *(self._copier(test, number) for number in range(settings.copiers)),
        ]

    def _calls(self) -> Calls:
        return Calls(self._stage.url, self._history, keys=self._settings.keys)

    @staticmethod
    def _host(test: unittest.TestCase, name: str) -> initiators.IscsiHost:
        host = initiators.IscsiHost(test, name)
        host.setUp()
        test.addCleanup(host.cleanUp)
        return host

    def _copier(self, test: unittest.TestCase, number: int) -> copiers.Copier:
        host = self._host(test, f"copying-{number}")
        volume = self._stage.copied[number]
        return copiers.Copier(
            self._calls(), self._stage, volume, host.connector, number, self._stop
        )

    def _client(self, test: unittest.TestCase, number: int) -> clients.Client:
        host = self._host(test, f"host-{number}")
        volumes = (self._stage.ordinary, self._stage.shared)
        seed = self._settings.seed
        return clients.Client(self._calls(), volumes, host, seed, number, self._stop)

    def whole(self) -> Report:
        """Run clients and faults."""
        watch = faults.Watch(self._stage.database)
        watch.start()
        killed = self._trouble(watch)
        self._say("no more trouble: waiting until all is at rest")
        started_at = time.monotonic()
        self._wait_for_clients()
        clients_ended = time.monotonic() - started_at
        self._stage.wait_until_served()
        found = self._compare()
        compared = time.monotonic() - started_at
        watch.stop()
        lines = self._figures(faults.recoveries(killed, self._history.successes, watch), killed)
        lines.append(
            f"after the trouble: last clear answer after {clients_ended:.1f} s, all compared "
            f"after {compared:.1f} s"
        )
        found += self._judge(lines)
        found += self._tidy_up(TIMEOUT if not found else _NO_HOPE)
        return Report(
            lines,
            [item.kind for item in killed],
            sum(client.carried_out for client in self._clients),
            self._history.violations + found,
        )

    def _trouble(self, watch: faults.Watch) -> list[faults.Killed]:
        seconds, seed = self._settings.seconds, self._settings.seed
        self._stage.proxy.drop_responses(DROPPED)
        until = time.monotonic() + seconds
        for client in self._clients:
            client.start()
        try:
            wrecker = faults.Wrecker(self._stage, watch, seed, self._say)
            return wrecker.wreak(plan.kills(seed, seconds, self._settings.kinds), until)
        finally:
            self._stop.set()
            self._stage.proxy.pass_on()

    def _wait_for_clients(self) -> None:
        deadline = time.monotonic() + 2 * TIMEOUT  # a call gives up by itself
        for client in self._clients:
            if not client.ended(max(0.0, deadline - time.monotonic())):
                self._history.violation(f"{client.name} still waits for something")

    def _believed(self) -> Mapping[str, clients.Belief]:
        return {
            attachment: belief
            for client in self._clients
            for attachment, belief in client.believes.items()
        }

    def _compare(self) -> list[str]:
        """Compare the state of clients with lists, database and exports."""
        stage = self._stage
        found = consistency.wait_until_consistent(
            lambda: consistency.find_unfinished(stage.database), TIMEOUT
        )
        found += consistency.wait_until_consistent(
            lambda: consistency.compare_with_tgt(stage.database, stage.tgtd), TIMEOUT
        )
        found += consistency.wait_until_consistent(stage.images.find_unfinished, TIMEOUT)
        believed = self._believed()
        listed = {
            item["id"]: (volume, item["instance"], item["status"])
            for volume in stage.volumes
            for item in self._calls().listing(volume)
        }
        for volume in stage.volumes:
            self._calls().check_volume(volume)
        found += [
            f"no client has {item}: {listed[item]}" for item in listed if item not in believed
        ]
        for attachment, belief in believed.items():
            found += _difference(attachment, belief, listed.get(attachment))
        return found

    def _judge(self, lines: list[str]) -> list[str]:
        started_at = time.monotonic()
        found = self._history.judge(self._stage.shared)
        seconds = time.monotonic() - started_at
        lines.append(
            f"{self._history.size()} operations of {len(self._stage.ordinary)} ordinary and "
            f"{len(self._stage.shared)} shared volumes, {len(found)} histories not linearizable; "
            f"judged in {seconds:.1f} s"
        )
        return found

    def _tidy_up(self, seconds: float) -> list[str]:
        """Delete everything; no object may remain after some seconds."""
        calls = self._calls()
        for volume in self._stage.volumes:
            for item in calls.listing(volume):
                calls.delete(volume, item["id"])
        self._stage.remove_volumes()
        return consistency.wait_until_consistent(
            lambda: [f"left over: {orphan}" for orphan in self._stage.tgtd.orphans()], seconds
        )

    def _figures(
        self, recoveries: list[faults.Recovery], killed: list[faults.Killed]
    ) -> list[str]:
        intentions = sum(client.carried_out for client in self._clients)
        settings = self._settings
        lines = [
            f"soak of {settings.seconds:.0f} s, seed {settings.seed}: {settings.clients} clients "
            f"carried out {intentions} intentions; POST is repeated "
            + ("with its key" if settings.keys else "after a list"),
            f"answers dropped: {self._stage.proxy.dropped}",
        ]
        verbs: dict[str, list[str]] = {}
        for (verb, outcome), count in sorted(self._history.outcomes.items()):
            verbs.setdefault(verb, []).append(f"{outcome}: {count}")
        lines += [f"  {verb}: " + ", ".join(outcomes) for verb, outcomes in verbs.items()]
        lines += faults.table(recoveries, killed)
        lines.append(
            f"still attached, reserved or in transition at the end: {len(self._believed())}"
        )
        accidents = self._stage.accidents()
        lines.append(f"tracebacks in the logs: {accidents.total()}")
        lines += [f"  {count} times: {said}" for said, count in accidents.most_common()]
        return lines


def _difference(
    attachment: str, belief: clients.Belief, listed: tuple[str, str, str] | None
) -> list[str]:
    if listed is None:
        return [f"{attachment} is gone, which is believed to be: {belief}"]
    as_believed = (belief.volume, belief.server, belief.word or listed[2])
    if listed != as_believed:
        return [f"{attachment} is {listed}, which is believed to be: {belief}"]
    return []
