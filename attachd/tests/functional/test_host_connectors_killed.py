# SPDX-License-Identifier: Apache-2.0
"""Tests of connectors in a process that is killed at each step, and of the next one.

The points are not listed by hand: Python reports each file, directory, process and socket before
it is used (sys.addaudithook), and a process that has just started is one more point.
"""

import os
import signal
import subprocess
import sys
import traceback

from attachd.tests.fixtures.user_space_devices import (
    MIB,
    OPTIONS,
    UserSpaceDeviceCase,
    read_at,
    write_at,
)
from attachd.tests.selection import full_only

_TRACED = frozenset(
    {
        "fcntl.flock",
        "os.link",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "socket.connect",
        "subprocess.Popen",
    }
)
_MOST = 2000
"""Points that are tried at most: each look of a loop that waits is one, too."""
DATA = b"kept" * 1024


class Killer:
    """Kills this process at its point of a number; for a child of the test."""

    def __init__(self, number):
        self._left = number

    def install(self):
        sys.addaudithook(self.hear)
        start = subprocess.Popen.__init__

        def starting(process, *arguments, **options):
            start(process, *arguments, **options)
            self.count()

        subprocess.Popen.__init__ = starting

    def hear(self, event, arguments):
        writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in _TRACED or writing:
            self.count()

    def count(self):
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


@full_only("crash")
class KilledTest(UserSpaceDeviceCase):
    """An unfinished operation is finished or undone by the next process."""

    def setUp(self):
        super().setUp()
        self.granted, self.info = self.export()

    def killed_at(self, number, call):
        """Do something in a process that is killed at its point of a number, if it has so many.

        :returns: whether it was killed
        """
        child = os.fork()
        if not child:
            code = 1
            try:
                Killer(number).install()
                call()
                code = 0
            except BaseException:  # noqa: BLE001 (nothing may get out of the child)
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.assertEqual(signal.SIGKILL, os.WTERMSIG(status))
            return True
        self.assertEqual(0, os.WEXITSTATUS(status), "see the trace above")
        return False

    def each_point(self, call):
        """Yield after each kill, until no point is left."""
        for number in range(_MOST):
            with self.subTest(point=number):
                if not self.killed_at(number, call):
                    # That the points are found is part of the claim.
                    self.assertGreater(number, 5)
                    return
                yield number
        self.fail(f"there are more than {_MOST} points")

    def connect(self):
        return self.connector.connect(self.info, OPTIONS)

    def disconnect(self):
        self.connector.disconnect(self.info, OPTIONS, None)

    def test_connect_killed_at_any_step_can_be_repeated(self):
        for _ in self.each_point(self.connect):
            device = self.connect()
            self.assertEqual(device, self.connect())
            self.assertEqual(MIB, len(read_at(device.path, 0, MIB)))
            self.assertEqual(1, len(self.tgtd.sessions()))
            self.disconnect()
            self.assert_nothing_is_left()

    def test_connect_killed_at_any_step_can_be_undone(self):
        for _ in self.each_point(self.connect):
            self.disconnect()
            self.assert_nothing_is_left()
        self.disconnect()

    def test_disconnect_killed_at_any_step_can_be_repeated(self):
        self.write()
        for _ in self.each_point(self.disconnect):
            self.disconnect()
            self.assert_nothing_is_left()
            self.assertEqual(DATA, self.on_backend(MIB, len(DATA)))
            self.write()
        self.assertEqual(DATA, self.on_backend(MIB, len(DATA)))
        self.assert_nothing_is_left()

    def test_disconnect_killed_at_any_step_can_be_followed_by_connect(self):
        self.write()
        for _ in self.each_point(self.disconnect):
            device = self.connect()
            self.assertEqual(DATA, read_at(device.path, MIB, len(DATA)))
            self.assertEqual(1, len(self.tgtd.sessions()))

    def write(self):
        device = self.connect()
        write_at(device.path, MIB, bytes(len(DATA)))
        write_at(device.path, MIB, DATA)
