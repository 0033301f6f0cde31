# SPDX-License-Identifier: Apache-2.0
"""Crash points in API and manager at the borders of their process, for fork_server.py."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import functools
import inspect
import os
import re
import subprocess
import sys
from types import FrameType
from typing import Any
from unittest import mock

from oslo_messaging._drivers import amqpdriver
from oslo_messaging.rpc import server as rpc_server

from attachd.db.engine import session
from attachd.drivers import abilities, base, command
from attachd.drivers.rbd import cluster
from attachd.drivers.tgt import control_socket
from attachd.images import glance, qemu_img
from attachd.manager import backends, background_tasks
from attachd.manager.periodic_tasks import recovery
from attachd.rpc import answers, call_client, path_check, receiver, transport
from attachd.tests.fixtures import crash_points

_CHANGES = frozenset(
    {
        *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
        *("os.symlink", "os.truncate", "fcntl.ioctl", "shutil.rmtree"),
    }
)
"""Audit events before something outside of the process changes, or may."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_WORD = re.compile("[a-z]+")
_DRIVER = "driver "
_LOOK = re.compile("show|listwatchers|lock info", re.IGNORECASE)
"""What only looks, and so is no step; what is on both sides of it has points of its own."""


def install() -> None:
    """Make points in this process and its children; there is no way back."""
    _of_the_database()
    _of_messages()
    _of_drivers()
    _of_tools()
    _of_requests_to_tgtd()
    _bracket(cluster.Cluster, "_change", lambda _cluster, request: f"ceph {request['prefix']}")
    _of_files()
    _of_images()
    _of_long_work()
    _of_recovery()


def _bracket(owner: Any, attribute: str, name: Callable[..., str]) -> None:
    """Have points before and after each call of a function, also one that raises.

    :param name: what it is about, of the function's arguments
    """
    _put(owner, attribute, _bracketed(getattr(owner, attribute), name))


def _put(owner: Any, attribute: str, function: Callable[..., Any]) -> None:
    """Replace a function permanently; a missing one is an error."""
    mock.patch.object(owner, attribute, function).start()


def _bracketed(real: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
    @functools.wraps(real)
    def called(*args: Any, **kwargs: Any) -> Any:
        what = name(*args, **kwargs)
        with crash_points.looking() if _LOOK.search(what) else _step(what):
            return real(*args, **kwargs)

    return called


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    with crash_points.within(name):
        crash_points.pass_point("before")
        try:
            yield
        except BaseException:
            crash_points.pass_point("after its failure")
            raise
        crash_points.pass_point("after")


def _of_the_database() -> None:
    make = session.create_writer

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        engine = make(*args, **kwargs)
        _bracket(engine.dialect, "do_commit", _committing)
        return engine

    _put(session, "create_writer", made)


def _committing(*_args: Any) -> str:
    """Name the function of db that has the transaction."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("attachd.db.") and module != "attachd.db.engine.session":
            return f"COMMIT {module.removeprefix('attachd.db.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "COMMIT"


def _of_messages() -> None:
    for method in ("call", "cast"):
        _bracket(
            transport.Client,
            method,
            lambda _client, _context, method, **_more: f"message {method}",
        )
    wait = amqpdriver.ReplyWaiter.wait

    @functools.wraps(wait)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        crash_points.pass_point("sent")
        return wait(*args, **kwargs)

    _put(amqpdriver.ReplyWaiter, "wait", waiting)
    work = rpc_server.RPCServer._process_incoming

    @functools.wraps(work)
    def working(server: Any, incoming: Any) -> Any:
        with _in_call(incoming[0].message["method"]):
            crash_points.pass_point("received")
            work(server, incoming)

    _put(rpc_server.RPCServer, "_process_incoming", working)
    take = amqpdriver.RpcAMQPListener.__call__

    @functools.wraps(take)
    def taking(listener: Any, message: Any) -> None:
        # Acknowledged here, by the thread that listens; a message is delivered again if
        # the process is killed before, and lost after.
        with _in_call(message["method"]), _step("acknowledge"):
            take(listener, message)

    _put(amqpdriver.RpcAMQPListener, "__call__", taking)
    _bracket(amqpdriver.AMQPIncomingMessage, "reply", lambda *_args, **_kwargs: "reply")
    _of_messages_of_agents()


def _of_messages_of_agents() -> None:
    get = call_client.get_answer

    @functools.wraps(get)
    def getting(*args: Any) -> Any:
        crash_points.pass_point("sent")
        return get(*args)

    _put(call_client, "get_answer", getting)
    work = receiver.answer

    @functools.wraps(work)
    def working(dispatcher: Any, incoming: Any) -> None:
        with _in_call(incoming.message["method"]):
            crash_points.pass_point("received")
            work(dispatcher, incoming)

    _put(receiver, "answer", working)
    _bracket(answers.AnswerSender, "send", lambda *_args: "reply")


def _of_drivers() -> None:
    load = backends.load

    @functools.wraps(load)
    def loaded(*args: Any, **kwargs: Any) -> Iterable[Any]:
        found = load(*args, **kwargs)
        for backend in found:
            _watch(backend.driver)
        return found

    _put(backends, "load", loaded)


def _watch(driver: base.Driver) -> None:
    """Have points around each method of a driver that the manager may call."""
    known = [kind for kind in abilities.ABILITIES.values() if isinstance(driver, kind)]
    methods = {
        name for kind in (base.Driver, *known) for name, _ in inspect.getmembers(kind, callable)
    }
    for name in sorted(methods):
        if not name.startswith("_"):
            _bracket(driver, name, functools.partial(_named, f"{_DRIVER}{name}"))


def _named(name: str, *_args: Any, **_kwargs: Any) -> str:
    return name


def _of_tools() -> None:
    _bracket(command, "run", lambda line, *_args, **_kwargs: _words(line))
    talk = subprocess.Popen.communicate

    @functools.wraps(talk)
    def talking(*args: Any, **kwargs: Any) -> Any:
        crash_points.pass_point(crash_points.TOOL_RUNS.removeprefix(" > "))
        return talk(*args, **kwargs)

    _put(subprocess.Popen, "communicate", talking)
    check = base.check_still_owner

    @functools.wraps(check)
    def checked() -> None:
        check()
        crash_points.pass_point("may change something")

    _put(base, "check_still_owner", checked)


def _words(line: Iterable[str]) -> str:
    """Shorten a command to what is the same for all volumes."""
    return " ".join(part for part in line if _WORD.fullmatch(part))


def _in_call(method: str) -> contextlib.AbstractContextManager[None]:
    """Work on a message; probes come at any time, and their points would not come again."""
    if method == path_check.METHOD:
        return contextlib.nullcontext()
    return crash_points.in_call(method)


def _of_requests_to_tgtd() -> None:
    _bracket(
        control_socket.Control,
        "request_together",
        lambda _control, *groups: ", ".join(
            control_socket._named(request) for group in groups for request in group
        ),
    )
    # Sent, but not answered; answered.
    _bracket(control_socket, "_answer", lambda _channel: "answer")


def _of_images() -> None:
    _bracket(qemu_img.QemuImg, "run", lambda _program, command, *_more: f"qemu-img {command}")
    _bracket(
        glance.ImageApi,
        "_send",
        lambda _api, method, *_path, **_more: (
            "show image" if method == "GET" else f"{method} image"
        ),
    )


def _of_files() -> None:
    def note(event: str, args: tuple[Any, ...]) -> None:
        changes = event in _CHANGES or (event == "open" and _is_written(*args))
        if changes and any(
            current_call.startswith(_DRIVER) for current_call in crash_points.current_calls()
        ):
            crash_points.pass_point(event)

    sys.addaudithook(note)


def _is_written(path: object, _mode: object, flags: int | None) -> bool:
    return bool((flags or 0) & _WRITING) and path != os.devnull


def _of_long_work() -> None:
    """Let what a call leaves to a thread of its own be a part of it."""
    begin = background_tasks.BackgroundTasks.submit

    @functools.wraps(begin)
    def started(work: Any, volume_id: str, do: Callable[[], None]) -> None:
        name = crash_points.current_calls()

        def done() -> None:
            with crash_points.in_call(f"{name[0]} later") if name else contextlib.nullcontext():
                do()

        begin(work, volume_id, done)

    _put(background_tasks.BackgroundTasks, "submit", started)


def _of_recovery() -> None:
    resume = recovery.recover_all

    @functools.wraps(resume)
    def resuming(*args: Any, **kwargs: Any) -> int:
        with crash_points.in_call(crash_points.RECOVERY):
            return resume(*args, **kwargs)

    _put(recovery, "recover_all", resuming)


class Application:
    """A WSGI application with points where a request comes in and where its answer leaves."""

    def __init__(self, real: Callable[..., Iterable[bytes]]) -> None:
        self._real = real

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        """Answer a request; the server takes the last bytes before the last point."""
        with crash_points.in_call("request"):
            crash_points.pass_point("received")
            answer = list(self._real(environ, start_response))
            crash_points.pass_point("answered")
            yield from answer
            crash_points.pass_point("sent")
