# SPDX-License-Identifier: Apache-2.0
"""Records the points of a call, and lets a process die at each of them; for the tests."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import random
import time
from typing import Any, Literal

from attachd.tests import threeway
from attachd.tests.crashing.asking import Attempt
from attachd.tests.crashing.calls import Call
from attachd.tests.crashing.points import RECOVERY, TOOL_RUNS, Point, Victim
from attachd.tests.crashing.site import Member, Site
from attachd.tests.wait import TIMEOUT, wait_until

Survivors = Literal["a new one", "the other one"]
"""Who takes up what a dead manager has left: its successor, or another one beside it."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a call.

    :ivar died: whether somebody came to the point
    :ivar seconds: from the restart until nothing was half-way, and all agreed
    :ivar left: what was not as it has to be
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


def record(site: Site, kind: type[Call]) -> list[Point]:
    """Make a call in which nobody dies, and return all points that were passed."""
    call = kind(site)
    call.prepare()
    rest(site)
    serial = site.arm()
    attempt = site.client.begin(call.request())
    assert _wait(site, serial, attempt) is None
    site.disarm()
    answer = attempt.wait()
    assert answer.status in kind.ENDS, answer
    assert not (wrong := list(call.wrong())), wrong
    _clean(call)
    return [each.point for each in site.passed(serial) if each.point is not None]


def die_at(
    site: Site,
    kind: type[Call],
    point: Point,
    victim: Victim = "process",
    survivors: Survivors = "a new one",
    limit: float = TIMEOUT,
) -> Outcome:
    """Make a call in which a process dies at a point, and repeat it.

    :param survivors: who is there afterwards
    :param limit: seconds after which nothing half-way may be left
    """
    call = kind(site)
    dead = _let_die(call, point, victim)
    if dead is not None and (survivors == "a new one" or dead.role == "api"):
        site.replace(dead)
    seconds, left = _look(call, limit)
    if dead is not None and dead in site.members:
        site.replace(dead)
    return Outcome(kind, point, victim, dead is not None, seconds, left)


def die_in_recovery(
    site: Site, kind: type[Call], first: Point, second: Point | None
) -> tuple[Outcome, list[Point]]:
    """Do as :func:`die_at`, and let the manager's successor die at a point of its recovery.

    :param second: where; None: nowhere
    :returns: what became of it, and the points that were passed in the recovery
    """
    call = kind(site)
    dead = _let_die(call, first, "process")
    assert dead is not None, first
    serial = site.arm(second)
    site.replace(dead)
    again = _wait_for_recovery(site, serial)
    site.disarm()
    if again is not None:
        site.replace(again)
    seconds, left = _look(call, TIMEOUT)
    outcome = Outcome(kind, second or first, "process", again is not None, seconds, left)
    return outcome, [each.point for each in site.passed(serial) if each.point is not None]


def _let_die(call: Call, point: Point, victim: Victim) -> Member | None:
    """Make a call and return who died of it, if anybody did."""
    site = call.site
    call.prepare()
    rest(site)
    serial = site.arm(point, victim)
    attempt = site.client.begin(call.request())
    dead = _wait(site, serial, attempt)
    site.disarm()
    if dead is not None:
        attempt.give_up()
    return dead


def _look(call: Call, limit: float) -> tuple[float, list[str]]:
    """Wait until all is at rest, repeat the call, and clean up.

    :returns: the seconds it took to come to rest, and what is not as it has to be
    """
    site, begun = call.site, time.monotonic()
    left = threeway.settled(lambda: site.unfinished() or site.differences(), limit)
    seconds = time.monotonic() - begun
    left = left or _ended_wrong(call)
    if not left:
        _clean(call)
    return seconds, left


def _wait_for_recovery(site: Site, serial: int) -> Member | None:
    """Wait until somebody has died of a plan, or a recovery has ended."""

    def has_ended() -> bool:
        return any(each.what == f"end {RECOVERY}" for each in site.passed(serial))

    wait_until(lambda: site.has_died(serial) or has_ended(), site.logs)
    return _buried(site) if site.has_died(serial) else None


def _buried(site: Site) -> Member:
    """Wait until the one who is dying has died."""
    dead = wait_until(site.dead, site.logs)
    assert dead is not None
    return dead


def _ended_wrong(call: Call) -> list[str]:
    """Repeat a call and tell what is not as it has to be then."""
    try:
        call.repeat()
    except AssertionError as error:
        return [f"repeated: {error}"]
    site = call.site
    return threeway.settled(lambda: site.unfinished() or [*call.wrong(), *site.differences()])


def rest(site: Site) -> None:
    """Wait until nothing is half-way."""
    left = threeway.settled(site.unfinished)
    assert not left, left


def _clean(call: Call) -> None:
    call.clean()
    rest(call.site)


def _wait(site: Site, serial: int, attempt: Attempt) -> Member | None:
    """Wait until somebody has died of a plan, or the call is over."""

    def is_over() -> bool:
        # In this order: work is begun by the call, or for a row that is half-way until it has
        # begun, so what has begun by then is all that there will be.
        return attempt.is_over and not site.unfinished() and _all_ended(site.passed(serial))

    wait_until(
        lambda: site.has_died(serial) or is_over(), lambda: (site.passed(serial), site.logs())
    )
    return _buried(site) if site.has_died(serial) else None


def _all_ended(passed: Iterable[Any]) -> bool:
    begun: Counter[tuple[str, int, str]] = Counter()
    for each in passed:
        what, _, call = each.what.partition(" ")
        begun[each.role, each.pid, call] += {"begin": 1, "end": -1}.get(what, 0)
    return not any(begun.values())


Death = tuple[type[Call], Point, Victim]
"""What is to be tried."""


def all_deaths(recorded: Mapping[type[Call], Sequence[Point]]) -> list[Death]:
    """Return every point of every call; where a tool runs, it dies as well or it does not."""
    victims: tuple[Victim, ...] = ("process", "tree")
    return [
        (kind, point, victim)
        for kind, points in recorded.items()
        for point in points
        for victim in victims[: 2 if point.name.endswith(TOOL_RUNS) else 1]
    ]


def each_step(deaths: Sequence[Death], seed: int) -> list[Death]:
    """Choose some, so that each step comes up, in one of the calls that take it.

    A step is what a point is next to, whichever call it is in and however often it comes there.
    """
    chance = random.Random(seed)
    steps: dict[tuple[str, str, str], list[Death]] = {}
    for death in deaths:
        _, point, victim = death
        _, _, step = point.name.partition(" > ")
        steps.setdefault((point.role, step, victim), []).append(death)
    chosen = {chance.choice(same) for same in steps.values()}
    return [death for death in deaths if death in chosen]


def some(deaths: Sequence[Death], most: int, seed: int) -> list[Death]:
    """Choose so many of them."""
    chosen = set(random.Random(seed).sample(deaths, min(most, len(deaths))))
    return [death for death in deaths if death in chosen]
