# SPDX-License-Identifier: Apache-2.0
"""Points that a process passes while it works on a call: recorded, or its end; for boundaries.py.

A point is a place between two steps.  Its name says where it is: the call, what it is in the
middle of, and the step, before or after which it is.  The same name may be passed several times
in one call, so a point is a name and a number.

What is to happen is read from the file ``plan`` in a folder that test and processes share, when
somebody begins to work on a call, which is then bound to that plan: what an earlier call has left
running neither counts nor dies for a later one.
"""

from collections import Counter
from collections.abc import Iterator
import contextlib
import contextvars
import dataclasses
import json
import os
from pathlib import Path
import signal
import threading
from typing import Literal, NamedTuple, NoReturn

Victim = Literal["process", "tree"]

RECOVERY = "recovery"
"""What the recovery of a manager that starts is called, as if it were a call."""

TOOL_RUNS = " > started"
"""What the names of points end with at which a tool of the process runs."""


class Point(NamedTuple):
    """Where a process may die.

    :ivar role: "api" or "manager"
    :ivar name: as above
    :ivar number: how many times the name has been passed in this call, counted from 1
    """

    role: str
    name: str
    number: int

    def __str__(self) -> str:
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.role}: {self.name}{again}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to happen.

    :ivar serial: names the plan; 0: nothing is recorded and nobody dies
    :ivar point: where a process is to die; None: nobody does
    :ivar victim: whether the tools that it has started die with it, as when the machine fails
    """

    serial: int = 0
    point: Point | None = None
    victim: Victim = "process"

    def write(self, folder: Path) -> None:
        """Have all processes follow it from now on."""
        new = folder / "plan.new"
        new.write_text(json.dumps(dataclasses.astuple(self)), encoding="utf-8")
        new.rename(folder / "plan")


def read_plan(folder: Path) -> Plan:
    """Return the plan that is to be followed."""
    serial, point, victim = json.loads((folder / "plan").read_text(encoding="utf-8"))
    return Plan(serial, None if point is None else Point(*point), victim)


def log_of(folder: Path, serial: int) -> Path:
    """Return the file with the points that were passed under a plan, a line of JSON each."""
    return folder / f"passed.{serial}"


def death_of(folder: Path, serial: int) -> Path:
    """Return the file that there is once somebody has died of a plan."""
    return folder / f"died.{serial}"


class _Work:
    """One call that this process works on."""

    def __init__(self, plan: Plan, counts: Counter[str]) -> None:
        self.plan = plan
        self.counts = counts


class _Process:
    """What this process knows of plans; nothing before :func:`follow`."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.role = ""
        self.lock = threading.Lock()
        self.serial = -1
        self.counts: Counter[str] = Counter()
        self.log = -1


_process = _Process()
_work: contextvars.ContextVar[_Work | None] = contextvars.ContextVar("work", default=None)
_where: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("where", default=())
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)


def follow(folder: Path, role: str) -> None:
    """Follow the plans in a folder, from the next call on."""
    _process.folder, _process.role = folder, role


@contextlib.contextmanager
def call(name: str) -> Iterator[None]:
    """Work on a call: what is passed here, by this thread, counts.

    A call within another one is a part of that.
    """
    if _process.folder is None or _work.get() is not None:
        with within(name):
            yield
        return
    work = _begin(_process.folder)
    tokens = _work.set(work), _where.set((name,))
    _note(work, f"begin {name}")
    try:
        yield
    finally:
        _note(work, f"end {name}")
        _where.reset(tokens[1])
        _work.reset(tokens[0])


def _begin(folder: Path) -> _Work:
    with _process.lock:
        plan = read_plan(folder)
        if plan.serial != _process.serial:
            _process.serial, _process.counts = plan.serial, Counter()
            flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
            _process.log = os.open(log_of(folder, plan.serial), flags, 0o600)
        return _Work(plan, _process.counts)


@contextlib.contextmanager
def within(name: str) -> Iterator[None]:
    """Be in the middle of something, which the names of points tell."""
    token = _where.set((*_where.get(), name))
    try:
        yield
    finally:
        _where.reset(token)


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Pass no points here."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def here() -> tuple[str, ...]:
    """Return what this thread is in the middle of."""
    return _where.get() if _work.get() is not None else ()


def passing(what: str) -> None:
    """Pass a point, if a call is worked on here; it may be the last thing that is done."""
    work = _work.get()
    if work is None or _inside.get() or not work.plan.serial:
        return
    token = _inside.set(True)  # What this does itself is no step.
    try:
        name = " > ".join((*_where.get(), what))
        with _process.lock:
            work.counts[name] += 1
            point = Point(_process.role, name, work.counts[name])
        _note(work, "pass", point)
        if point == work.plan.point:
            _die(work.plan)
    finally:
        _inside.reset(token)


def _note(work: _Work, what: str, point: Point | None = None) -> None:
    """Write one line, whole, to the log of the plan."""
    with _process.lock:
        if work.plan.serial == _process.serial != 0:
            line = json.dumps([what, _process.role, os.getpid(), point])
            os.write(_process.log, f"{line}\n".encode())


def _die(plan: Plan) -> None:
    """Be killed, unless somebody else has died of this plan."""
    assert _process.folder is not None
    try:
        mark = os.open(death_of(_process.folder, plan.serial), os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return
    os.close(mark)
    if plan.victim == "tree":
        for child in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    _kill_ourselves()


def _kill_ourselves() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody outlives SIGKILL")


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, listed.read_text().split()):
                found += [child, *_descendants(child)]
    return found
