# SPDX-License-Identifier: Apache-2.0
"""Hosts that move bytes with what a driver or the API answered; for tests with real data.

Each is told a ``connection_info`` as os-brick would be, and raises :class:`Refused` when the
backend does not let it do what it tries.
"""

import json
import os
from pathlib import Path
import subprocess
import tempfile
from typing import Any, Protocol
import unittest

import fixtures

from attachd.drivers import base
from attachd.tests import machine
from attachd.tests.wait import TIMEOUT, wait_until

# Whatever qemu-io prints before it complains of this is the answer to the command before.
_UNKNOWN = "is-that-all"

ConnectionInfo = base.ConnectionInfo | dict[str, Any]


class Refused(Exception):
    """The backend said no; the message is the initiator's."""


class Host(Protocol):
    """A host: a name, a connector, and bytes."""

    connector: dict[str, Any]

    def write(self, info: ConnectionInfo, offset: int, data: bytes) -> None:
        """Write, so that the bytes are on disk when this returns."""

    def read(self, info: ConnectionInfo, offset: int, length: int) -> bytes:
        """Read what is there now."""

    def size(self, info: ConnectionInfo) -> int:
        """Tell the size of the volume, in bytes."""


class LocalHost:
    """This machine, for "local" connections."""

    def __init__(self, name: str) -> None:
        self.connector = {"host": name, "ip": "127.0.0.1"}

    def write(self, info: ConnectionInfo, offset: int, data: bytes) -> None:
        """Write to the device or file."""
        try:
            with _path(info).open("r+b", buffering=0) as device:
                os.pwrite(device.fileno(), data, offset)
                os.fsync(device.fileno())
        except OSError as error:
            raise Refused(f"{error}") from error

    def read(self, info: ConnectionInfo, offset: int, length: int) -> bytes:
        """Read from the device or file."""
        try:
            with _path(info).open("rb", buffering=0) as device:
                data = os.pread(device.fileno(), length, offset)
        except OSError as error:
            raise Refused(f"{error}") from error
        if len(data) < length:
            # A loop device that is free is still there, with no bytes.
            raise Refused(f"only {len(data)} bytes of {length}")
        return data

    def size(self, info: ConnectionInfo) -> int:
        """Seek to the end."""
        with _path(info).open("rb") as device:
            return device.seek(0, os.SEEK_END)


class IscsiHost(fixtures.Fixture):
    """A host with an initiator of its own, which logs in for each command: qemu-io."""

    def __init__(self, test: unittest.TestCase, name: str) -> None:
        super().__init__()
        self._io = machine.need_tool(test, "qemu-io")
        # A process that stays must not outlive a test that was killed.
        self._bound = [machine.need_tool(test, "setpriv"), "--pdeathsig=KILL"]
        self._img = machine.need_tool(test, "qemu-img")
        self.connector = {
            "host": name,
            "ip": "127.0.0.1",
            "initiator": f"iqn.2026-01.internal.attachd.test:{name}",
            "multipath": False,
        }

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        self._folder = Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, info: ConnectionInfo, offset: int, data: bytes) -> None:
        """Log in, write, flush, log out."""
        source = self._file(data)
        self._run_io(info, f"write -s {source} {offset} {len(data)}", "flush")

    def read(self, info: ConnectionInfo, offset: int, length: int) -> bytes:
        """Log in, read, log out."""
        printed = self._run_io(info, f"read -v {offset} {length}")
        # 00000010:  68 65 6c 6c 6f ...  hello...
        lines = [line for line in printed.splitlines() if line[8:11] == ":  "]
        return b"".join(bytes.fromhex(line[11:58]) for line in lines)

    def size(self, info: ConnectionInfo) -> int:
        """Log in and ask."""
        line = [self._img, "info", "--output=json", *self._image(info)]
        return int(json.loads(_run(line))["virtual-size"])

    def log_in(self, info: ConnectionInfo, *commands: str) -> subprocess.Popen[str]:
        """Log in and stay, for the test to end; commands are those of qemu-io."""
        line = [*self._bound, *self._io_line(info)]
        process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self.addCleanup(_end, process)
        for each in ("length", *commands):
            self.command(process, each)
        return process

    @staticmethod
    def command(process: subprocess.Popen[str], line: str) -> str:
        """Give a logged-in qemu-io one command and return what it prints."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        # It reads a second line only after it has begun to answer the first.
        printed = process.stdout.readline()
        process.stdin.write(f"{_UNKNOWN}\n")
        while _UNKNOWN not in printed and (more := process.stdout.readline()):
            printed += more
        return printed

    def flood(self, info: ConnectionInfo, writes: int) -> subprocess.Popen[str]:
        """Begin to write as fast as it can, 64 blocks of 4 KiB at a time, stopping at an error."""
        image, _ = self.blockdev(info)
        image = image.replace("password-secret=chap", f"password={info['data']['auth_password']}")
        line = [
            *self._bound,
            self._img,
            "bench",
            "-w",
            "-t",
            "none",
            "-d",
            "64",
            "-c",
            f"{writes}",
        ]
        process = subprocess.Popen(
            [*line, "--image-opts", image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(_end, process)
        self.addCleanup(process.kill)
        return process

    def blockdev(self, info: ConnectionInfo) -> tuple[str, list[str]]:
        """Return QEMU's description of the volume, and the arguments with its secret."""
        data = info["data"]
        secret = self._file(data["auth_password"].encode())
        image = (
            f"driver=iscsi,transport=tcp,portal={data['target_portal']},"
            f"target={data['target_iqn']},lun={data['target_lun']},"
            f"initiator-name={self.connector['initiator']},"
            f"user={data['auth_username']},password-secret=chap"
        )
        if data.get("access_mode") == "ro":
            image += ",read-only=on"
        return image, ["--object", f"secret,id=chap,file={secret}"]

    def _image(self, info: ConnectionInfo) -> list[str]:
        image, secret = self.blockdev(info)
        return [*secret, "--image-opts", image]

    def _io_line(self, info: ConnectionInfo, *options: str) -> list[str]:
        reading = ["--read-only"] if info["data"].get("access_mode") == "ro" else []
        return [self._io, "--cache=none", *reading, *options, *self._image(info)]

    def _run_io(self, info: ConnectionInfo, *commands: str) -> str:
        options = [part for each in commands for part in ("--cmd", each)]
        printed = _run(self._io_line(info, *options))
        if "failed: " in printed:
            # It exits with 0 after a command that failed.
            raise Refused(printed)
        return printed

    def _file(self, data: bytes) -> Path:
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(data)
        return Path(file.name)


class DeviceHost(IscsiHost):
    """A host with a block device: QEMU's storage daemon logs in, a loop device shows its file.

    Attaching and detaching are steps of their own here; between them the volume is ``device``.
    """

    def __init__(self, test: unittest.TestCase, name: str) -> None:
        super().__init__(test, name)
        machine.need_root(test)
        machine.share_mounts(test)
        machine.need_device(test, "/dev/fuse")
        machine.need_device(test, "/dev/loop-control")
        self._daemon = [*self._bound, machine.need_tool(test, "qemu-storage-daemon")]
        self._losetup = machine.need_tool(test, "losetup")
        self._process: subprocess.Popen[bytes] | None = None
        self.device = ""

    def attach(self, info: ConnectionInfo) -> str:
        """Log in and return the path of the block device."""
        mountpoint = self._file(b"")
        image, secret = self.blockdev(info)
        export = f"type=fuse,id=e,node-name=n,mountpoint={mountpoint},writable=on"
        log = self._file(b"")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*self._daemon, *secret, "--blockdev", f"{image},node-name=n", "--export", export],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.addCleanup(self.detach)
        process = self._process
        wait_until(lambda: mountpoint.stat().st_size or process.poll() is not None, log.read_text)
        if mountpoint.stat().st_size == 0:
            raise Refused(log.read_text())
        self.device = _run([self._losetup, "--find", "--show", f"{mountpoint}"]).strip()
        return self.device

    def detach(self) -> None:
        """Flush and free the device, then log out."""
        if self.device:
            _run([self._losetup, "--detach", self.device])
            self.device = ""
        if self._process is not None:
            # On SIGTERM it flushes, unmounts and logs out.
            self._process.terminate()
            _end(self._process)
            self._process = None


def _path(info: ConnectionInfo) -> Path:
    return Path(info["data"]["device_path"])


def _run(line: list[str]) -> str:
    done = subprocess.run(
        line,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        raise Refused(done.stdout)
    return done.stdout


def _end(process: subprocess.Popen[Any]) -> None:
    """Wait for a process that was told to end, and make it end if it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
