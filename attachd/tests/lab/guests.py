# SPDX-License-Identifier: Apache-2.0
"""Virtual machines with os-brick, for tests that attach volumes on real hosts.

They come from the lab, a directory of scripts beside the project, which LAB_HOME names.
"""

from collections.abc import Callable, Iterable
import functools
import json
import os
from pathlib import Path
import shlex
import subprocess
import tempfile
from typing import Any, TypeVar
import unittest
import uuid

from attachd.tests.wait import wait_until

BLOCK = 4096
MACHINE = "10.0.2.2"
"""The address at which guests reach 127.0.0.1 of this machine."""

MACHINE_NETWORK, PRIVATE_NETWORK = "eth0", "eth1"
"""A guest's network cards: to the machine, also for commands of the tests; to the other guests."""

_BUILD_SECONDS = 1800
_SECONDS = 600
_INTERVAL = 0.1

# Importing os-brick takes seconds in an emulated guest, so the guest's command "brick" is run many
# times in one process.  Each line of input has its arguments, each line of output an answer.
_BRICK = """\
import contextlib, io, json, runpy, sys, traceback
for line in sys.stdin:
    sys.argv, said = ["brick", *json.loads(line)], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path("/usr/local/bin/brick")
        answer = {"said": json.loads(said.getvalue())}
    except BaseException:
        answer = {"failed": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
"""

# Each line that it prints is the number of blocks that are on disk.  It ends with its input.
_WRITER = f"""\
import mmap, os, select, sys
device = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
block, count = mmap.mmap(-1, {BLOCK}), 0
while not select.select([0], [], [], 0)[0]:
    block[:8] = (count + 1).to_bytes(8, "big")
    assert os.pwrite(device, block, int(sys.argv[2]) + count % 256 * {BLOCK}) == {BLOCK}
    count += 1
    print(count, flush=True)
"""

# It has no connection to the test.  Its output is the error with which it ends.
_FLOOD = f"""\
import mmap, os, sys
block, count, pattern = mmap.mmap(-1, {BLOCK}), 0, int(sys.argv[2])
try:
    device = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
    while True:
        block[:16] = pattern.to_bytes(8, "big") + (count + 1).to_bytes(8, "big")
        os.pwrite(device, block, count % int(sys.argv[3]) * {BLOCK})
        count += 1
except OSError as error:
    print(count, "blocks, then:", error, flush=True)
"""
_FLOOD_LOG, _FLOOD_PID = "/run/flood.log", "/run/flood.pid"

Value = TypeVar("Value")


def _wait_until(condition: Callable[[], Value], message: str | Callable[[], object] = "") -> Value:
    return wait_until(condition, message, timeout=_SECONDS, interval=_INTERVAL)


class Failed(Exception):
    """A command in a guest failed; the message is its output."""


def need_lab(test: unittest.TestCase) -> Path:
    """Return the path of the command ``lab``; without a lab the test is skipped, CI or not."""
    home = os.environ.get("LAB_HOME")
    if not home:
        test.skipTest("there is no lab: set LAB_HOME to its folder")
    command = Path(home).absolute() / "lab"
    if not os.access(command, os.X_OK):
        test.fail(f"LAB_HOME is set, but there is no command {command}")
    return command


class Lab:
    """Guests of this test run."""

    def __init__(self, command: Path) -> None:
        self._command = command
        self._name = f"attachd-{uuid.uuid4().hex[:8]}"

    def up(
        self, hosts: int, storage: int = 0, disk_mib: int = 4096, memory_mib: int = 512
    ) -> list["Guest"]:
        """Boot guests; the first ones ever have to be built before, which takes minutes.

        :param storage: how many storage nodes, which come last
        :param disk_mib: the size of the second disk that each of them has
        :param memory_mib: of each guest
        """
        counts = {"host": hosts, "storage": storage}
        names = [f"{kind}{n + 1}" for kind, count in counts.items() for n in range(count)]
        sizes = (f"hosts={hosts}", f"storage={storage}", f"disk={disk_mib}", f"mem={memory_mib}")
        self.start_guests("up", *sizes, names=names)
        return [Guest(self, name) for name in names]

    def start_guests(self, *arguments: str, names: Iterable[str]) -> None:
        """Run a command of the lab that boots guests, and wait until they are ready.

        On a busy machine the lab may look at QEMU in the moment in which a new program has no
        name yet, and consider it dead.  It is not, and can be waited for.

        :raises Failed: one of them does not boot
        """
        try:
            self.run(*arguments, seconds=_BUILD_SECONDS)
        except Failed as failure:
            if " died" not in f"{failure}":
                raise
            for name in names:
                self._wait_until_ready(name, failure)

    def _wait_until_ready(self, name: str, failure: Failed) -> None:
        def is_ready() -> bool:
            return b"LAB-READY" in self.run("console", name)

        try:
            _wait_until(lambda: is_ready() or not self.is_up(name))
            if not is_ready():
                raise failure
            _wait_until(lambda: not self.fails("exec", name, "true"))
        except AssertionError:
            raise failure from None

    def command_in(self, name: str, *command: str) -> list[str]:
        """Return a command of this machine that runs another one in a guest."""
        variables = f"LAB_NAME={self._name}"
        return ["env", variables, f"{self._command}", "exec", name, shlex.join(command)]

    def is_up(self, name: str) -> bool:
        """Whether a guest runs."""
        rows = [line.split() for line in self.run("status").decode().splitlines()]
        return any(row[0] == name and row[2] == "up" for row in rows)

    def fails(self, *arguments: str) -> bool:
        """Run the command ``lab``; raises an error if it fails."""
        try:
            self.run(*arguments)
        except Failed:
            return True
        return False

    def down(self) -> None:
        """Stop all guests and remove their disks."""
        self.run("down")

    def run(self, *arguments: str, data: bytes = b"", seconds: int = _SECONDS) -> bytes:
        """Run the command ``lab`` and return what it printed.

        :raises Failed: it did not exit with 0
        """
        # No pipe: guests would inherit it, and keep it open.
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaint:
            done = subprocess.run(
                [self._command, *arguments],
                input=data,
                stdout=said,
                stderr=complaint,
                env=self._environment(),
                timeout=seconds,
                check=False,
            )
            said.seek(0)
            complaint.seek(0)
            if done.returncode:
                raise Failed(f"{done.returncode}: {complaint.read().decode(errors='replace')}")
            return said.read()

    def start(self, *arguments: str, output: Path, complaint: Path) -> subprocess.Popen[bytes]:
        """Start the command ``lab``; its output and errors go to files."""
        with output.open("wb") as said, complaint.open("wb") as complained:
            return subprocess.Popen(
                [self._command, *arguments],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=complained,
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name != "LAB_STATE"}
        return {**own, "LAB_NAME": self._name}


def boot(test_class: type[unittest.TestCase], hosts: int) -> list["Guest"]:
    """Boot guests for all tests of a class."""
    lab = Lab(need_lab(unittest.TestCase()))
    test_class.addClassCleanup(lab.down)
    booted = lab.up(hosts=hosts)
    for guest in booted:
        test_class.addClassCleanup(guest.leave)
    return booted


class Program:
    """A program in a guest, which ends when its input does."""

    def __init__(self, lab: Lab, guest: str, *command: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self._output, self._complaint = (Path(self._folder.name, n) for n in ("out", "err"))
        self._process = lab.start(
            "exec", guest, shlex.join(command), output=self._output, complaint=self._complaint
        )

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def lines(self) -> list[str]:
        """Return the whole lines that it has printed."""
        return self._output.read_text(encoding="utf-8").split("\n")[:-1]

    def write_line(self, line: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait_for_lines(self, count: int) -> list[str]:
        """Wait until it has printed so many lines, and return all of them.

        :raises Failed: it does not
        """

        def come_or_over() -> list[list[str]]:
            # Looked at before the lines are, so that nothing is overlooked at the end.
            lives, lines = self.lives, self.lines()
            return [lines] if len(lines) >= count or not lives else []

        (lines,) = _wait_until(come_or_over, self.complaint)
        if len(lines) < count:
            raise Failed(self.complaint())
        return lines

    def complaint(self) -> str:
        """Return the end of its standard error."""
        return self._complaint.read_text(encoding="utf-8", errors="replace")[-2000:]

    def end(self) -> int:
        """End its input and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(_SECONDS)

    def kill(self) -> None:
        """Kill it, if it has not ended, and remove its output."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


class Guest:
    """One host, and the volume that it has.

    :ivar path: of the device, once a volume is attached
    """

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.path = ""
        self._device = ""
        self._options: tuple[str, ...] = ()
        self._brick: Program | None = None

    @functools.cached_property
    def private_address(self) -> str:
        """Its address in the network of the guests."""
        shown = self.run(f"ip -o -4 address show {PRIVATE_NETWORK}").decode().split()
        return shown[shown.index("inet") + 1].partition("/")[0]

    @functools.cached_property
    def connector(self) -> dict[str, Any]:
        """The connector properties by os-brick."""
        result: dict[str, Any] = self._ask_brick("connector")
        return result

    def attach(self, info: dict[str, Any], *options: str) -> None:
        """Have os-brick connect to a volume.

        :param info: as drivers.base.ConnectionInfo
        :param options: of the command "brick", for this and later calls: "--multipath"
        """
        self._options = options
        device = self._ask_brick("connect", json.dumps(info), *options)
        self.path, self._device = device["path"], json.dumps(device)

    def detach(self, info: dict[str, Any]) -> None:
        """Have os-brick disconnect what it connected to."""
        self._ask_brick("disconnect", json.dumps(info), self._device, *self._options)

    def detach_by_force(self, info: dict[str, Any]) -> None:
        """Have os-brick remove the remaining parts of a broken connection."""
        self._ask_brick("disconnect", json.dumps(info), self._device, "--force", *self._options)

    def extend(self, info: dict[str, Any]) -> int:
        """Have os-brick read the size of a volume that was extended, and return it."""
        size: int = self._ask_brick("extend", json.dumps(info), *self._options)["new_size"]
        return size

    def _ask_brick(self, *arguments: str) -> Any:
        if self._brick is None or not self._brick.lives:
            self.leave()
            self._brick = Program(self.lab, self.name, "/opt/brick/bin/python", "-c", _BRICK)
        before = len(self._brick.lines())
        self._brick.write_line(json.dumps(arguments))
        answer = json.loads(self._brick.wait_for_lines(before + 1)[-1])
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer["said"]

    def leave(self) -> None:
        """End the programs of the test in it."""
        if self._brick is not None:
            self._brick.kill()
            self._brick = None

    def write(self, offset: int, data: bytes) -> None:
        """Write whole blocks, past all caches."""
        self.run(
            f"dd of={self.path} bs={len(data)} count=1 seek={offset} oflag=direct,seek_bytes "
            "iflag=fullblock conv=nocreat,notrunc,fsync status=none",
            data,
        )

    def read(self, offset: int, length: int) -> bytes:
        """Read whole blocks, past all caches."""
        return self.run(
            f"dd if={self.path} bs={length} count=1 skip={offset} iflag=direct,skip_bytes "
            "status=none"
        )

    def sessions(self) -> list[str]:
        """List the iSCSI sessions."""
        return self.run("ls /sys/class/iscsi_session").decode().split()

    def devices(self) -> list[str]:
        """List the disks but the guest's own."""
        disks = self.run("lsblk --nodeps --noheadings --output NAME").decode().split()
        return [name for name in disks if name != "vda"]

    def run(self, command: str, data: bytes = b"") -> bytes:
        """Run a line of shell and return what it printed.

        :raises Failed: it did not exit with 0
        """
        return self.lab.run("exec", self.name, command, data=data)

    def cut_off(self, network: str = MACHINE_NETWORK) -> None:
        """Disconnect a network: packets are dropped without an error."""
        self.lab.run("link", self.name, network, "off")

    def plug_in(self, network: str = MACHINE_NETWORK) -> None:
        """Connect the network again, and wait until commands reach the guest."""
        self.lab.run("link", self.name, network, "on")
        _wait_until(lambda: not self.lab.fails("exec", self.name, "true"))

    def crash(self) -> None:
        """Cut the power."""
        self.leave()
        self.lab.run("crash", self.name)

    def shut_down(self) -> None:
        """Shut it down, with its data on its disk, and wait until it is off."""
        self.leave()
        self.run("sync; nohup sh -c 'sleep 1; kill -TERM 1' > /dev/null 2>&1 < /dev/null &")
        _wait_until(lambda: not self.lab.is_up(self.name), f"{self.name} does not shut down")

    def boot(self) -> None:
        """Start it after a crash or a shutdown, with the same disk."""
        self.lab.start_guests("boot", self.name, names=[self.name])

    def forget(self) -> None:
        """Remove all sessions and devices that a test left."""
        self.run("iscsiadm --mode node --logoutall=all; iscsiadm --mode node --op delete; true")


class Writer:
    """A program in a guest that writes block after block, straight to disk, until it is ended.

    :param offset: where it writes; it takes up a MiB
    """

    def __init__(self, test: unittest.TestCase, guest: Guest, offset: int) -> None:
        self._program = Program(
            guest.lab, guest.name, "python3", "-c", _WRITER, guest.path, f"{offset}"
        )
        test.addCleanup(self._program.kill)
        self.go_on()

    def go_on(self) -> None:
        """Check that it continues to write.

        :raises Failed: it has ended
        """
        self._program.wait_for_lines(len(self._program.lines()) + 20)

    def end(self) -> int:
        """Stop it and return how many blocks it has written.

        :raises Failed: one of them it could not write
        """
        if self._program.end():
            raise Failed(self._program.complaint())
        return len(self._program.lines())


class Flood:
    """A program in a guest that writes until it gets an error, also when the test cannot reach it.

    Each block begins with 8 bytes of the pattern and 8 of a counter.
    """

    def __init__(self, guest: Guest, pattern: int, blocks: int) -> None:
        """Start it.

        :param pattern: what its blocks begin with, as a number
        :param blocks: how many it writes before it begins again at the start of the device
        """
        self._guest = guest
        line = shlex.join(["python3", "-c", _FLOOD, guest.path, f"{pattern}", f"{blocks}"])
        guest.run(f"setsid {line} > {_FLOOD_LOG} 2>&1 < /dev/null & echo $! > {_FLOOD_PID}")

    def error(self) -> str:
        """Return with which error it has ended; "" if it runs."""
        return self._guest.run(f"cat {_FLOOD_LOG}").decode().strip()

    def wait_for_error(self) -> str:
        """Wait until it has ended, and return its error."""
        return _wait_until(self.error)
