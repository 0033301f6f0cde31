# SPDX-License-Identifier: Apache-2.0
"""The queue of the messages that an RPC server has received, by project and volume.

oslo.messaging gives each message to a pool of threads in the order of arrival.  With that order
the calls for one busy volume would wait for its lock in all threads of the backend, and the calls
of one busy project would precede those of all others.  Here a message waits outside of the
threads until its volume is free, and free threads take the messages of the projects in turn.  No
project has all threads: those of its calls may be slow, such as for images that it has spoilt.
Requests for whose end no client waits, such as deletions, leave half of the threads to calls.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import threading
import time
from typing import Any, ClassVar, Final
import weakref

from oslo_log import log
import oslo_messaging as messaging
from oslo_messaging.rpc.server import RPCServer

from attachd.rpc.fair_queue import FairQueue, Place
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

Process = Callable[[Sequence[Any]], None]
"""Executes a received message and sends the answer; it raises nothing."""


BACKGROUND: Final = frozenset(
    {
        "create_volume",
        "delete_volume",
        "extend_volume",
        "reimage_volume",
        "upload_volume",
        "manage_volume",
        "unmanage_volume",
        "revert_volume",
        "create_snapshot",
        "delete_snapshot",
    }
)
"""Methods of managers that work on data, maybe for long, and for whose end no client waits."""

_KINDS: Final = ("call", "background")


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A message that waits.

    :ivar place: one of _KINDS, the project whose share of the threads it uses, and the volume that
        it works on; "" for calls that wait for no other call
    """

    process: Process
    incoming: Sequence[Any]
    place: Place
    arrived: float


@dataclasses.dataclass(slots=True)
class _Turn:
    """The time for which a volume has a slot: from its first running call to its last one.

    :ivar admitted: how many calls have begun to run in this time
    """

    project: str
    running: int = 0
    admitted: int = 0


class _Slots:
    """The slots of volumes, and of calls without one, that have running calls.

    :param maximum: how many there are; of one project three quarters of them
    :ivar turns: of the volumes that have a slot
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._max_of_project = maximum - maximum // 4
        self._taken: Counter[str] = Counter()  # By project.
        self.turns: dict[str, _Turn] = {}

    @property
    def are_taken(self) -> bool:
        """Whether none is free."""
        return self._taken.total() >= self._maximum

    def is_within_share(self, project: str) -> bool:
        """Return whether a project may have one more."""
        return self._taken[project] < self._max_of_project

    def begin(self, project: str, volume: str) -> None:
        """Count a call as running."""
        if volume not in self.turns:
            self._taken[project] += 1
        if volume:
            turn = self.turns.setdefault(volume, _Turn(project))
            turn.running += 1
            turn.admitted += 1

    def end(self, project: str, volume: str) -> None:
        """Count a call as ended."""
        if volume:
            turn = self.turns[volume]
            turn.running -= 1
            if turn.running:
                return
            project = self.turns.pop(volume).project
        self._taken -= Counter([project])


class _Queue(FairQueue[_Call]):
    """Calls that wait, and the slots of those that run.

    Kinds of calls have turns, of a kind the projects, of a project its volumes.  A volume with a
    slot may run further calls, but once it has run ``per_volume`` of them only as long as no call
    waits for its slot.

    :param max_running: how many slots there are; calls of BACKGROUND have half of them at most
    :param per_volume: how many calls for one volume run at the same time
    """

    def __init__(self, max_running: int, per_volume: int) -> None:
        super().__init__()
        self._per_volume = per_volume
        self._slots = _Slots(max_running)
        self._background = _Slots(max(1, max_running // 2))
        self._needed = dict(
            zip(_KINDS, [(self._slots,), (self._slots, self._background)], strict=True)
        )

    @property
    def projects(self) -> int:
        """How many projects have waiting calls."""
        calls, background = map(self.names, _KINDS)
        return len({*calls, *background})  # It needs no lock: no bytecode runs while it iterates.

    def begin_next(self) -> _Call | None:
        """Remove the next call that may run, and count it as running; None: none."""
        if not self.length:
            return None
        found = self.take(self._may_begin)
        # Projects at a limit may have thousands of waiting volumes: only the running ones matter.
        call = found[1] if found else self._take_for_running()
        if call is not None:
            kind, *place = call.place
            for slots in self._needed[kind]:
                slots.begin(*place)
        return call

    def end(self, call: _Call) -> None:
        """Count a taken call as ended."""
        kind, *place = call.place
        for slots in self._needed[kind]:
            slots.end(*place)

    def _take_for_running(self) -> _Call | None:
        for volume, turn in self._slots.turns.items():
            for kind in self.names():
                place = (kind, turn.project, volume)
                if volume in self.names(*place[:-1]) and self._may_begin(place):
                    return self.take_at(place)
        return None

    def _may_begin(self, place: Place) -> bool:
        """Return whether a kind, or a project, may have one more slot; for a volume: may run."""
        kind, *rest = place
        needed = self._needed[kind]
        match rest:
            case []:
                return not any(slots.are_taken for slots in needed)
            case [project]:
                return all(slots.is_within_share(project) for slots in needed)
        return all(self._has_slot(slots, *rest) for slots in needed)

    def _has_slot(self, slots: _Slots, project: str, volume: str) -> bool:
        """Return whether a call for a volume may use its slot, or a free one."""
        turn = slots.turns.get(volume)
        if turn is None:
            return not slots.are_taken and slots.is_within_share(project)
        if turn.running >= self._per_volume:
            return False
        return turn.admitted < self._per_volume or not self._is_awaited(slots, turn.project)

    def _is_awaited(self, slots: _Slots, holder: str) -> bool:
        """Return whether a call waits that may use a slot of a project when it becomes free."""
        kinds = [kind for kind in self.names() if slots in self._needed[kind]]
        return any(
            self._would_begin(kind, project, slots)
            for kind in kinds
            for project in (self.names(kind) if slots.are_taken else [holder])
            if project == holder or slots.is_within_share(project)
        )

    def _would_begin(self, kind: str, project: str, slots: _Slots) -> bool:
        """Return whether a project has a waiting call that lacks only one of these slots."""
        if slots is self._slots and self._background in self._needed[kind]:
            others = self._background
            if others.are_taken or not others.is_within_share(project):
                return False
        turns = slots.turns
        return any(
            volume not in turns or turns[volume].project != project
            for volume in self.names(kind, project)
        )


class FairExecutor:
    """The threads of one server; takes the place of the thread pool of oslo.messaging.

    :param name: of the server, for metrics and reports
    :param max_workers: how many volumes, and calls without one, are worked on at the same time
    :param per_volume: how many calls for one volume have a thread at the same time
    :param place_of: takes a message and returns its share of the threads, and its volume
    """

    def __init__(
        self,
        name: str,
        max_workers: int,
        per_volume: int = 1,
        place_of: Callable[[Any], tuple[str, str]] | None = None,
    ) -> None:
        self._name = name
        self._place_of = place_of or place_of_message
        self._max_threads = max_workers * per_volume
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._queue = _Queue(max_workers, per_volume)
        self._handed: deque[_Call] = deque()  # to threads that begin, or wake up
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stopping = False
        _executors.add(self)

    def submit(self, process: Process, incoming: Sequence[Any], *, first: bool = False) -> None:
        """Queue a message, ``first`` before all that wait, and return at once.

        :raises RuntimeError: the executor was shut down
        """
        kind = _KINDS[incoming[0].message.get("method") in BACKGROUND]
        place = (kind, *self._place_of(incoming[0]))
        call = _Call(process, incoming, place, time.monotonic())
        with self._mutex:
            if self._stopping:
                raise RuntimeError("The server has stopped.")
            (self._queue.put_first if first else self._queue.put)(place, call)
            self._use_free_threads()

    def execute(self, function: Callable[[], object]) -> None:
        """Execute a function in the next free thread, before the messages that wait.

        :raises RuntimeError: the executor was shut down
        """
        self.submit(lambda _incoming: _call(function), [_OwnWork()], first=True)

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002  as of a thread pool
        """Execute what waits, and end the threads.

        :param wait: return when they have ended
        """
        with self._mutex:
            self._stopping = True
            self._wake_all()
            threads = list(self._threads)
        while wait and threads:
            for thread in threads:
                thread.join()
            with self._mutex:
                threads = list(self._threads)

    def describe(self) -> tuple[str, int, int]:
        """Return the name, the number of waiting calls, and of how many projects they are."""
        return self._name, self._queue.length, self._queue.projects

    def _use_free_threads(self) -> None:
        """Give the next calls to idle or new threads, as far as there are any."""
        while self._idle or len(self._threads) < self._max_threads:
            if (call := self._queue.begin_next()) is None:
                return
            self._handed.append(call)
            if self._idle:
                self._idle -= 1
                self._changed.notify()
            else:
                self._start_thread()

    def _start_thread(self) -> None:
        name = f"rpc-{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _wake_all(self) -> None:
        self._idle = 0
        self._changed.notify_all()

    def _work(self) -> None:
        call = None
        while (call := self._next(call)) is not None:
            if metrics.is_enabled():
                waited = time.monotonic() - call.arrived
                metrics.observe(metrics.QUEUE_DURATION, waited, self._name)
            try:
                call.process(call.incoming)
            except Exception:
                LOG.exception("A call to %s failed", self._name)

    def _next(self, ended: _Call | None) -> _Call | None:
        """Return the next call; None if the thread has to end.

        :param ended: the call that the thread has executed; None: it begins
        """
        with self._mutex:
            if ended is not None:
                self._queue.end(ended)
                if (call := self._queue.begin_next()) is not None:
                    self._use_free_threads()  # More than one call may have waited for this end.
                    return call
            while not self._handed:
                if self._stopping and not self._queue.length:
                    self._wake_all()
                    self._threads.discard(threading.current_thread())
                    return None
                self._idle += 1
                self._changed.wait()
            return self._handed.popleft()


_executors: weakref.WeakSet[FairExecutor] = weakref.WeakSet()


def queue_lengths() -> list[tuple[str, int, int]]:
    """Return each server of this process, how many calls wait, and of how many projects.

    The function takes no lock, so that it also answers in a process that hangs.
    """
    return sorted(executor.describe() for executor in list(_executors))


def place_of_message(message: Any) -> tuple[str, str]:
    """Return the share of the threads that a message uses, and the volume that it is about."""
    content = message.ctxt, message.message
    return share_of(*content), volume_of(*content)


def share_of(context: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Return whose share of the threads a message uses.

    :param context: as it was sent
    :returns: the project; for messages without one, such as those of agents, the host that they
        name
    """
    return str(context.get("project_id") or _arguments(message).get("host") or "")


def volume_of(context: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Return the id of the volume that a message is about, or "".

    :param context: as it was sent; it names the volume of messages without such an argument
    """
    arguments = _arguments(message)
    volume = arguments.get("volume")
    if isinstance(volume, Mapping):  # a versioned object, as it was sent
        data = volume.get("attachd_object.data")
        return str(data.get("id") or "") if isinstance(data, Mapping) else ""
    return str(arguments.get("volume_id") or context.get("resource_uuid") or "")


def _arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = message.get("args")
    return arguments if isinstance(arguments, Mapping) else {}


def _call(function: Callable[[], object]) -> None:
    function()


class _OwnWork:
    """In place of a message: work of the server itself, with a share of its own."""

    ctxt: ClassVar[dict[str, str]] = {"project_id": "-"}
    message: ClassVar[dict[str, str]] = {}


class FairServer:
    """An RPC server that executes messages in the order of :class:`FairExecutor`.

    oslo.messaging has no public way to another order, or to a listener that ends before the calls
    in progress; tests/unit/test_private_names.py pins the private names.
    """

    def __init__(
        self, transport: Any, target: messaging.Target, dispatcher: Any, per_volume: int = 1
    ) -> None:
        self._target = target
        self._per_volume = per_volume
        self._executor: FairExecutor | None = None
        self._is_stopping = False
        self._server = RPCServer(transport, target, dispatcher)
        self._server._executor_cls = self._make_executor  # noqa: SLF001

    def _make_executor(self, max_workers: int) -> FairExecutor:
        name = self._target.server or self._target.topic
        self._executor = FairExecutor(name, max_workers, self._per_volume)
        return self._executor

    def start(self, override_pool_size: int | None = None) -> None:
        """Begin to receive, with so many threads; return when everything is declared."""
        self._server.start(override_pool_size=override_pool_size)

    def stop(self) -> None:
        """Receive no more messages; those that arrive from now on go to other servers.

        oslo.messaging closes the connection when all calls have ended, which may take long; the
        broker delivers messages to it until then.  While it closes the connection, it would
        acknowledge those that come meanwhile, unread.  The broker delivers again what was not
        acknowledged.
        """
        listener = getattr(self._server.listener, "_poll_style_listener", None)
        connection = None if self._is_stopping else getattr(listener, "conn", None)
        self._is_stopping = True
        for consumer in list(getattr(connection, "_consumers", ())):
            consumer.callback = _leave
        self._server.stop()
        if connection is not None:
            connection.close()  # Answers are sent by others.

    def wait(self) -> None:
        """Wait until all received messages are processed."""
        self._server.wait()

    def execute(self, function: Callable[[], object]) -> None:
        """Execute a function in a thread of the server, before the messages that wait.

        :raises RuntimeError: the server has stopped
        """
        if self._executor is not None:
            self._executor.execute(function)


def _leave(_message: Any) -> None:
    """Do not acknowledge a message."""
