# SPDX-License-Identifier: Apache-2.0
"""Copies of this process that kill themselves at a chosen point of what a client does.

A point is before each write of the journal, each request that changes something, each call of a
connector and each command that changes a device or a mount; so each is also after the one before.
One more is where a request was sent and the service works on it.  A copy needs no start of Python,
which makes it cheap to try them all.
"""

from collections.abc import Callable, Iterator
import contextlib
import os
from pathlib import Path
import re
import signal
import traceback
from typing import Any
from unittest import mock

import requests
import urllib3

from attachd.agent import commands, journal
from attachd.agent.connectors.brick import BrickConnector
from attachd.agent.connectors.qemu.connector import QemuConnector

_CHANGING = ("mkfs", "mount", "umount", "wipefs")


class Failed(Exception):
    """A copy that was not killed has failed."""


class Death:
    """Counts points, and kills this process at one of them.

    :param number: of the point, counted from 0
    :param note: a file that gets the name of the point
    :param among: what the names of points contain that count
    """

    def __init__(self, number: int, note: Path, among: str) -> None:
        self._left = number
        self._note = note
        self._among = re.compile(among)

    def passing(self, name: str) -> None:
        """Pass a point, or end here."""
        if not self._among.search(name):
            return
        if self._left == 0:
            self._note.write_text(name, encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    @contextlib.contextmanager
    def lurking(self) -> Iterator[None]:
        """Have the points of this process passed."""
        with contextlib.ExitStack() as patches:
            points: tuple[tuple[Any, str, Callable[..., str]], ...] = (
                (journal.Journal, "write", _step),
                (journal.Journal, "remove", lambda *_a, **_k: "journal: remove"),
                (requests.Session, "send", _request),
                (urllib3.connection.HTTPConnection, "getresponse", _answer),
                (commands, "execute", _command),
                (commands, "run_long", _command),
                *(
                    (connector, verb, lambda *_a, verb=verb, **_k: f"connector: {verb}")
                    for connector in (BrickConnector, QemuConnector)
                    for verb in ("connect", "disconnect")
                ),
            )
            for owner, name, label in points:
                wrapped = self._before(getattr(owner, name), label)
                patches.enter_context(mock.patch.object(owner, name, wrapped))
            yield

    def _before(self, real: Callable[..., Any], label: Callable[..., str]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name := label(*arguments, **named):
                self.passing(name)
            return real(*arguments, **named)

        return call


def _step(_journal: Any, entry: journal.Entry, **changes: Any) -> str:
    return f"journal: {changes.get('step', entry.step)} {sorted(changes)}"


def _request(_session: Any, request: Any, **_named: Any) -> str:
    return "" if request.method == "GET" else f"{request.method} {request.path_url}"


def _answer(connection: Any) -> str:
    method = connection._response_options.request_method
    return "" if method == "GET" else f"answer to {method}"


def _command(arguments: Any, *_more: Any, **_named: Any) -> str:
    return f"{arguments[0]}" if arguments[0].startswith(_CHANGING) else ""


def dies(number: int, note: Path, act: Callable[[], Any], among: str = "") -> bool:
    """Do something in a copy of this process, up to a point; others as of :class:`Death`.

    :returns: whether it came to the point
    :raises Failed: it came to another end
    """
    note.unlink(missing_ok=True)
    copy = os.fork()
    if copy == 0:
        _end_with(Death(number, note, among), note, act)
    _pid, status = os.waitpid(copy, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise Failed(note.read_text(encoding="utf-8"))
    return False


def _end_with(death: Death, note: Path, act: Callable[[], Any]) -> None:
    code = 1
    try:
        with death.lurking():
            act()
        code = 0
    except BaseException:  # noqa: BLE001  nothing of the test may run in the copy
        note.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)
