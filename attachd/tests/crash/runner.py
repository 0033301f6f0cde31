# SPDX-License-Identifier: Apache-2.0
"""Runs of calls: recording their points, and killing a process at one of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import random
import time
from typing import Any, Literal

from attachd.tests.crash.calls import Call
from attachd.tests.crash.client import PendingRequest
from attachd.tests.crash.deployment import CrashDeployment, ForkedService
from attachd.tests.fixtures import consistency
from attachd.tests.fixtures.crash_points import RECOVERY, STORAGE, TOOL_RUNS, Point, Victim
from attachd.tests.wait import TIMEOUT, wait_until

Survivors = Literal["a new one", "the other one"]
"""Who takes up what a dead manager has left: its successor, or another one beside it."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a call.

    :ivar died: whether a process was killed
    :ivar seconds: from the restart until no operation was in progress and everything agreed
    :ivar left: sentences about wrong results
    """

    kind: type[Call]
    point: Point
    victim: Victim
    died: bool
    seconds: float
    left: Sequence[str]

    def __str__(self) -> str:
        where = f"{self.kind.__name__}, {self.point}, the {self.victim}, {self.seconds:.1f} s:"
        return "\n    ".join([where, *self.left])


def record(deployment: CrashDeployment, kind: type[Call]) -> list[Point]:
    """Make a call without a kill, and return all points that it passed."""
    call = kind(deployment)
    call.prepare()
    rest(deployment)
    serial = deployment.arm()
    attempt = deployment.client.start(call.request())
    assert _wait(deployment, serial, attempt) is None
    deployment.disarm()
    answer = attempt.wait()
    assert answer.status in kind.ENDS, answer
    assert not (wrong := list(call.wrong())), wrong
    _clean(call)
    return [item.point for item in deployment.passed(serial) if item.point is not None]


def crash_at(
    deployment: CrashDeployment,
    kind: type[Call],
    point: Point,
    victim: Victim = "process",
    survivors: Survivors = "a new one",
    limit: float = TIMEOUT,
) -> Outcome:
    """Make a call in which a process dies at a point, and repeat it.

    :param survivors: who is there afterwards
    :param limit: seconds after which no row may be in a transitional state
    """
    call = kind(deployment)
    if victim in STORAGE:
        died = _without_storage(call, point, victim)
        seconds, left = _recover(call, limit)
        return Outcome(kind, point, victim, died, seconds, left)
    dead = _let_die(call, point, victim)
    if dead is not None and (survivors == "a new one" or dead.role == "api"):
        deployment.replace(dead)
    seconds, left = _recover(call, limit)
    if dead is not None and dead in deployment.members:
        deployment.replace(dead)
    return Outcome(kind, point, victim, dead is not None, seconds, left)


def crash_in_recovery(
    deployment: CrashDeployment, kind: type[Call], first: Point, second: Point | None
) -> tuple[Outcome, list[Point]]:
    """Do as :func:`crash_at`, and let the manager's successor die at a point of its recovery.

    :param second: where; None: nowhere
    :returns: what became of it, and the points that were passed in the recovery
    """
    call = kind(deployment)
    dead = _let_die(call, first, "process")
    assert dead is not None, first
    serial = deployment.arm(second)
    deployment.replace(dead)
    again = _wait_for_recovery(deployment, serial)
    deployment.disarm()
    if again is not None:
        deployment.replace(again)
    seconds, left = _recover(call, TIMEOUT)
    outcome = Outcome(kind, second or first, "process", again is not None, seconds, left)
    return outcome, [item.point for item in deployment.passed(serial) if item.point is not None]


def _let_die(call: Call, point: Point, victim: Victim) -> ForkedService | None:
    """Make a call and return the process that was killed, if any."""
    deployment = call.deployment
    call.prepare()
    rest(deployment)
    serial = deployment.arm(point, victim)
    attempt = deployment.client.start(call.request())
    dead = _wait(deployment, serial, attempt)
    deployment.disarm()
    if dead is not None:
        attempt.abort()
    return dead


def _without_storage(call: Call, point: Point, victim: Victim) -> bool:
    """Make a call during which the storage daemon is killed, and restarted; return whether it was.

    It is back, and empty, when the call is over, or while the process waits at the point.
    """
    deployment = call.deployment
    call.prepare()
    rest(deployment)
    serial = deployment.arm(point, victim)
    attempt = deployment.client.start(call.request())

    def is_over() -> bool:
        # Without the backend rows stay unfinished.
        return (
            attempt.is_over
            and (deployment.has_died(serial) or not deployment.unfinished())
            and _all_ended(deployment.passed(serial))
        )

    died = False
    if victim == "storage for a moment":
        wait_until(lambda: deployment.has_died(serial) or is_over(), deployment.logs)
        if died := deployment.has_died(serial):
            deployment.restart_storage(serial)
    wait_until(is_over, lambda: (deployment.passed(serial), deployment.logs()))
    if not died and (died := deployment.has_died(serial)):
        deployment.restart_storage(serial)
    deployment.disarm()
    # A manager that has yet to notice it refuses work on volumes.
    left = consistency.wait_until_consistent(deployment.down)
    assert not left, left
    return died


def _recover(call: Call, limit: float) -> tuple[float, list[str]]:
    """Wait until all is at rest, repeat the call, and clean up.

    :returns: the seconds it took to come to rest, and what is not as it has to be
    """
    deployment, started_at = call.deployment, time.monotonic()
    left = consistency.wait_until_consistent(
        lambda: deployment.unfinished() or deployment.uncertain() or deployment.differences(),
        limit,
    )
    seconds = time.monotonic() - started_at
    left = left or _ended_wrong(call)
    if not left:
        _clean(call)
    return seconds, left


def _wait_for_recovery(deployment: CrashDeployment, serial: int) -> ForkedService | None:
    """Wait until a process was killed under a plan, or a recovery has ended."""

    def has_ended() -> bool:
        # A recovery that finds the work of a tool in progress is put off, and ends without it.
        ended = any(item.what == f"end {RECOVERY}" for item in deployment.passed(serial))
        return ended and not deployment.unfinished()

    wait_until(lambda: deployment.has_died(serial) or has_ended(), deployment.logs)
    return _buried(deployment) if deployment.has_died(serial) else None


def _buried(deployment: CrashDeployment) -> ForkedService:
    """Wait until the killed process has ended."""
    dead = wait_until(deployment.ended_member, deployment.logs)
    assert dead is not None
    return dead


def _ended_wrong(call: Call) -> list[str]:
    """Repeat a call and return sentences about wrong results."""
    try:
        call.repeat()
    except AssertionError as error:
        return [f"repeated: {error}"]
    deployment = call.deployment
    return consistency.wait_until_consistent(
        lambda: deployment.unfinished() or [*call.wrong(), *deployment.differences()]
    )


def rest(deployment: CrashDeployment) -> None:
    """Wait until no operation is in progress."""
    left = consistency.wait_until_consistent(deployment.unfinished)
    assert not left, left


def _clean(call: Call) -> None:
    call.clean()
    rest(call.deployment)


def _wait(
    deployment: CrashDeployment, serial: int, attempt: PendingRequest
) -> ForkedService | None:
    """Wait until a process was killed under a plan, or the call is over."""

    def is_over() -> bool:
        # In this order: work starts with the call, or for a row in a transitional state, so
        # no further work can start after both checks.
        return (
            attempt.is_over
            and not deployment.unfinished()
            and _all_ended(deployment.passed(serial))
        )

    wait_until(
        lambda: deployment.has_died(serial) or is_over(),
        lambda: (deployment.passed(serial), deployment.logs()),
    )
    return _buried(deployment) if deployment.has_died(serial) else None


def _all_ended(passed: Iterable[Any]) -> bool:
    started: Counter[tuple[str, int, str]] = Counter()
    for item in passed:
        what, _, call = item.what.partition(" ")
        started[item.role, item.pid, call] += {"begin": 1, "end": -1}.get(what, 0)
    return not any(started.values())


Death = tuple[type[Call], Point, Victim]
"""What is to be tried."""


def all_crashes(recorded: Mapping[type[Call], Sequence[Point]]) -> list[Death]:
    """Return every point of every call; where a tool runs, it dies as well or it does not."""
    victims: tuple[Victim, ...] = ("process", "tree")
    return [
        (kind, point, victim)
        for kind, points in recorded.items()
        for point in points
        for victim in victims[: 2 if point.name.endswith(TOOL_RUNS) else 1]
    ]


def each_step(deaths: Sequence[Death], seed: int) -> list[Death]:
    """Choose deaths so that each step occurs once, in one of the calls that take it.

    A step is the function next to a point; its call and its repetitions do not matter.
    """
    chance = random.Random(seed)
    steps: dict[tuple[str, str, str], list[Death]] = {}
    for death in deaths:
        _, point, victim = death
        _, _, step = point.name.partition(" > ")
        steps.setdefault((point.role, step, victim), []).append(death)
    chosen = {chance.choice(same) for same in steps.values()}
    return [death for death in deaths if death in chosen]


def sample(deaths: Sequence[Death], most: int, seed: int) -> list[Death]:
    """Choose so many of them."""
    chosen = set(random.Random(seed).sample(deaths, min(most, len(deaths))))
    return [death for death in deaths if death in chosen]
