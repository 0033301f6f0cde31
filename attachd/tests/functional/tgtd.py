# SPDX-License-Identifier: Apache-2.0
"""A tgtd of a test's own: its own socket and port, gone with the test."""

import os
from pathlib import Path
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import fixtures

from attachd.drivers.tgt import parser
from attachd.tests import machine, wait

_START_TRIES = 5


class Tgtd(fixtures.Fixture):
    """A running tgtd, and what tgtadm says of it, asked without the driver's help.

    :ivar portal: ADDRESS:PORT for initiators
    :ivar options: those of the tgt driver which lead to this tgtd; ``tgt_volumes_dir`` as well
    """

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__()
        self._daemon = [
            machine.need_tool(test, "setpriv"),
            "--pdeathsig=KILL",
            machine.need_tool(test, "tgtd"),
        ]
        self._tgtadm = machine.need_tool(test, "tgtadm")
        self._process: subprocess.Popen[bytes] | None = None

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        # Not the test's own folder: the path of a socket has room for 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="attachd-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self._folder, ignore_errors=True)
        self._socket = self._folder / "tgtd"
        self._start_on_a_free_port()
        self.options = {
            "tgt_volumes_dir": f"{self._folder / 'volumes'}",
            "tgt_portal": self.portal,
            "tgt_control_socket": f"{self._socket}",
        }

    def restart(self) -> None:
        """Kill tgtd, which then knows nothing any more, and start it at the same portal."""
        self.stop()
        if not self._start():
            raise AssertionError(self._log())

    def stop(self) -> None:
        """Kill tgtd; it ignores SIGTERM."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let tgtd answer nothing until :meth:`go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.go_on)

    def go_on(self) -> None:
        """End a pause."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def targets(self) -> list[parser.Target]:
        """List the targets."""
        return list(parser.targets(self.adm("--op", "show", "--mode", "target")))

    def sessions(self) -> list[str]:
        """List the initiators that are logged in."""
        return [
            connection.initiator
            for target in self.targets()
            for connection in parser.connections(
                self.adm("--op", "show", "--mode", "conn", "--tid", f"{target.tid}")
            )
        ]

    def accounts(self) -> list[str]:
        """List the CHAP users, the driver's guard left out."""
        listed = parser.accounts(self.adm("--op", "show", "--mode", "account"))
        return [user for user in listed if not user.startswith("attachd-sentinel")]

    def leftovers(self) -> list[str]:
        """List what an idle tgtd and an empty backend do not have."""
        folder = Path(self.options["tgt_volumes_dir"])
        files = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [target.name for target in self.targets()] + self.accounts() + files

    def adm(self, *arguments: str) -> str:
        """Run tgtadm and return what it prints."""
        return subprocess.run(
            [self._tgtadm, "--lld", "iscsi", *arguments],
            env={"TGT_IPC_SOCKET": f"{self._socket}"},
            check=True,
            capture_output=True,
            text=True,
            timeout=wait.TIMEOUT,
        ).stdout

    def _start_on_a_free_port(self) -> None:
        for _ in range(_START_TRIES):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.portal = f"127.0.0.1:{probe.getsockname()[1]}"
            # Somebody else may take the port before tgtd does.
            if self._start():
                return
        raise AssertionError(self._log())

    def _start(self) -> bool:
        line = [*self._daemon, "--foreground", "--iscsi", f"portal={self.portal}"]
        # Only a killed tgtd leaves them.
        for stale in self._folder.glob("tgtd.*"):
            stale.unlink()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                line,
                env=os.environ | {"TGT_IPC_SOCKET": f"{self._socket}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(self.stop)
        return self._wait_for_it()

    def _wait_for_it(self) -> bool:
        assert self._process is not None
        (portals,) = wait.wait_until(self._portals_or_end, self._log)
        if portals is None:
            self.stop()
            return False
        return self.portal in portals

    def _portals_or_end(self) -> list[str | None]:
        """Return what tgtadm says of the portals, None if tgtd has ended; [] for neither."""
        assert self._process is not None
        # Checked before tgtd is asked: one that has answered has not ended for want of a port.
        ended = self._process.poll() is not None
        try:
            return [self.adm("--op", "show", "--mode", "portal")]
        except subprocess.CalledProcessError:
            return [None] if ended else []

    def _log(self) -> str:
        return f"tgtd does not start: {(self._folder / 'log').read_text()}"
