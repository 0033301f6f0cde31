# SPDX-License-Identifier: Apache-2.0
"""QEMU's storage daemons, each of which shows one volume as a file; for qemu/connector.py.

A daemon has a folder, and everything about it follows from the folder's path, so that whoever
comes later finds it: by its command line, which names the folder.
"""

from collections.abc import Sequence
import contextlib
import json
import os
from pathlib import Path
import re
import signal
import time

from attachd import exception
from attachd.agent import commands
from attachd.agent.connectors.qemu import fusemounts, processes, qmp
from attachd.agent.connectors.qemu.blockdev import SECRET, Image

TOOL = "qemu-storage-daemon"

START_SECONDS = 60.0
END_SECONDS = 30.0
KILL_SECONDS = 10.0
_NAP = 0.02
_SIZE_SECONDS = 30.0
_NODE = "volume"
_LOG_CHARACTERS = 600
_ARGUMENT = re.compile(r"--\w+ \{.*\}: ")


def image_file(folder: Path) -> Path:
    """Return the file that is the volume while the daemon runs."""
    return folder / "image"


def command(folder: Path, image: Image) -> list[str]:
    """Return the command line of the daemon; there is no secret in it."""
    blockdev = image.blockdev | {"node-name": _NODE}
    export = {
        "type": "fuse",
        "id": "export",
        "node-name": _NODE,
        "mountpoint": f"{image_file(folder)}",
        "writable": image.writable,
        # Else everybody on the host might be asked by the kernel's FUSE about it.
        "allow-other": "off",
    }
    secret = {"qom-type": "secret", "id": SECRET, "file": f"{_secret_file(folder)}"}
    if "key-secret" in image.blockdev:
        # Ceph's keys are encoded already, and QEMU would do it once more.
        secret["format"] = "base64"
    objects = ["--object", json.dumps(secret)] if image.secret is not None else []
    # The path of a socket has little room: it is told from within the folder.
    monitor = ["--chardev", "socket,id=qmp,path=qmp,server=on,wait=off", "--monitor", "qmp"]
    return [
        *(TOOL, *objects, *monitor),
        *("--blockdev", json.dumps(blockdev), "--export", json.dumps(export)),
        *_mark(folder),
    ]


def find(folder: Path) -> list[processes.Process]:
    """List the daemons of a folder, be they just starting; there should be one at most."""
    mark = _mark(folder)

    def wanted(line: Sequence[str]) -> bool:
        tools = {os.path.basename(each) for each in line[:3]}  # noqa: PTH119 (no path to be)
        return TOOL in tools and list(line[-len(mark) :]) == mark

    return processes.find(folder, wanted)


def is_ready(folder: Path) -> bool:
    """Tell whether the file is the volume by now."""
    try:
        # Written last, and by the daemon itself.
        told = (folder / "pid").read_text().strip()
    except OSError:
        return False
    running = {f"{each.id}" for each in find(folder)}
    return told in running and fusemounts.is_mounted(image_file(folder))


def start(folder: Path, image: Image) -> None:
    """Start a daemon in its folder, which exists and has no other one, and wait until it is ready.

    :raises HostError: it is not, and does not run
    """
    for name in ("pid", "qmp"):
        (folder / name).unlink(missing_ok=True)
    image_file(folder).touch(mode=0o600)
    if image.secret is not None:
        _write_secret(folder, image.secret)
    commands.start(*command(folder, image), folder=folder, log=folder / "log")
    await_ready(folder)


def await_ready(folder: Path) -> None:
    """Wait until the one daemon that was started is ready, whoever started it.

    :raises HostError: it is not, and does not run
    """
    deadline = time.monotonic() + START_SECONDS
    while not is_ready(folder):
        found = find(folder)
        if found and time.monotonic() > deadline:
            stop(folder, force=True)
            raise _unreached(f"no answer in {START_SECONDS:g} s. {_log(folder)}")
        if not found:
            raise _unreached(_log(folder) or f"{TOOL} has ended without a word.")
        # Not longer: it may be the command that has just started it.
        found[0].wait(_NAP)
    # It has been read, and is asked for again by nobody.
    _secret_file(folder).unlink(missing_ok=True)


def stop(folder: Path, *, force: bool = False) -> None:
    """Let the daemons of a folder write what they have, log out and end.

    :param force: kill those that do not
    :raises HostError: one still runs
    """
    # Again and again, for one may just be starting another one.
    while found := find(folder):
        for each in found:
            _end(each, force=force)


def kill(folder: Path) -> None:
    """End the daemons of a folder at once; raises HostError if one still runs."""
    while found := find(folder):
        for each in found:
            if not each.end(signal.SIGKILL, KILL_SECONDS):
                raise _endless(each)


def resize(folder: Path) -> int:
    """Have the daemon ask for the size of the volume; returns it in bytes.

    QEMU's iSCSI initiator reads the capacity when it is told to resize, whatever to, and takes
    that: it cannot resize a unit.

    :raises HostError: it does not answer, or refuses
    """
    file = image_file(folder)
    with qmp.Monitor(folder / "qmp") as monitor:
        known = file.stat().st_size
        monitor.execute("block_resize", {"node-name": _NODE, "size": known})
        nodes = monitor.execute("query-named-block-nodes", {"flat": True})
    size = int(next(each["image"]["virtual-size"] for each in nodes if each["node-name"] == _NODE))
    deadline = time.monotonic() + _SIZE_SECONDS
    # The kernel asks a FUSE file for its size once in a second.
    while file.stat().st_size != size:
        if time.monotonic() > deadline:
            raise exception.HostError(reason=f"{file} does not grow. Repeat the command.")
        time.sleep(_NAP)
    return size


def clear(folder: Path, *, lock: int) -> None:
    """Remove what a daemon that has ended left behind, its mount and its files.

    :param lock: see commands.run()
    :raises HostError: something is left
    """
    fusemounts.unmount(image_file(folder), lock=lock)
    for name in ("secret", "pid", "qmp", "log", "image"):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()


def _end(daemon: processes.Process, *, force: bool) -> None:
    if daemon.end(signal.SIGTERM, KILL_SECONDS if force else END_SECONDS):
        return
    if not force or not daemon.end(signal.SIGKILL, KILL_SECONDS):
        raise _endless(daemon)


def _endless(daemon: processes.Process) -> exception.HostError:
    return exception.HostError(
        reason=f"{TOOL} (process {daemon.id}) does not end: its backend may be out of reach. "
        "Repeat the detach when it is back, or force it, which loses what was not written."
    )


def _mark(folder: Path) -> list[str]:
    return ["--pidfile", f"{folder / 'pid'}"]


def _secret_file(folder: Path) -> Path:
    return folder / "secret"


def _write_secret(folder: Path, secret: str) -> None:
    path = _secret_file(folder)
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as output:
        output.write(secret)


def _unreached(why: str) -> exception.HostError:
    return exception.HostError(reason=f"The volume could not be reached: {why.strip()}")


def _log(folder: Path) -> str:
    try:
        said = (folder / "log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Whoever reads it knows what was asked for.
    return " ".join(_ARGUMENT.sub("", said).split())[-_LOG_CHARACTERS:]
