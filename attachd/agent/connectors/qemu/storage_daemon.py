# SPDX-License-Identifier: Apache-2.0
"""QEMU's storage daemons: each exports one volume as a file (FUSE); used by volume_device.py.

A daemon has a directory, and all its names follow from the path of that directory.  Any process
can find the daemon by its command line, which contains the path.

It runs in a sandbox: root mounts the file and makes the socket of the monitor, and it inherits
both; see confinement.py.
"""

from collections.abc import Iterator, Sequence
import contextlib
import json
import os
from pathlib import Path
import re
import signal
import socket
import time
from types import TracebackType
from typing import Any, Self

from attachd import exception
from attachd.agent.connectors.qemu import confinement, processes
from attachd.agent.connectors.qemu.blockdev import SECRET, VolumePath
from attachd.linux import commands, mountinfo, sandbox

TOOL = "qemu-storage-daemon"

START_TIMEOUT = 60.0
END_TIMEOUT = 30.0
KILL_TIMEOUT = 10.0
TOTAL_END_TIMEOUT = 60.0
"""Seconds after which no further daemon of a directory is ended: others start again and again."""
_QMP_TIMEOUT = 60.0
_RESIZE_TIMEOUT = 30.0
_POLL_INTERVAL = 0.02
_NODE = "volume"
_FUSE_FD = sandbox.FIRST_FD
_MONITOR_FD = sandbox.FIRST_FD + 1
_MAX_RESPONSE_BYTES = 2**20
_CEPH_CONF = "ceph.conf"
_MAX_LOG_CHARACTERS = 600
_ARGUMENT = re.compile(r"--\w+ \{.*\}: ")


def image_file(directory: Path) -> Path:
    """Return the path of the file that is the volume while the daemon runs."""
    return directory / "image"


def command_line(directory: Path, path: VolumePath) -> list[str]:
    """Return the command line of the daemon; there is no secret in it."""
    blockdev = path.blockdev | {"node-name": _NODE}
    if path.ceph_conf is not None:
        blockdev["conf"] = f"{directory / _CEPH_CONF}"
    export = {
        "type": "fuse",
        "id": "export",
        "node-name": _NODE,
        # libfuse takes the descriptor.  QEMU wants a regular file there: the sandbox has one.
        "mountpoint": f"/dev/fd/{_FUSE_FD}",
        "writable": path.writable,
        "allow-other": "off",
    }
    secret = {"qom-type": "secret", "id": SECRET, "file": f"{_secret_file(directory)}"}
    if "key-secret" in path.blockdev:
        # Ceph's keys are encoded already, and QEMU would encode them again.
        secret["format"] = "base64"
    objects = ["--object", json.dumps(secret)] if path.secret is not None else []
    monitor = ["--chardev", f"socket,id=qmp,fd={_MONITOR_FD},server=on,wait=off"]
    return [
        *(commands.which(TOOL) or TOOL, *objects, *monitor, "--monitor", "qmp"),
        *("--blockdev", json.dumps(blockdev), "--export", json.dumps(export)),
        *_mark(directory),
    ]


def list_running(directory: Path) -> list[processes.Process]:
    """List the daemons of a directory, also those that just start; one at most is expected."""
    mark = _mark(directory)

    def is_daemon(line: Sequence[str]) -> bool:
        tools = {os.path.basename(word) for word in line}  # noqa: PTH119 (not a path)
        return TOOL in tools and list(line[-len(mark) :]) == mark

    return processes.find(directory, is_daemon)


def is_ready(directory: Path) -> bool:
    """Return whether the file is the volume by now."""
    try:
        # The daemon writes it, as the last step of its start.
        pid = (directory / "pid").read_text().strip()
    except OSError:
        return False
    running = {f"{daemon.id}" for daemon in list_running(directory)}
    return pid in running and is_fuse_mounted(image_file(directory))


def start(directory: Path, path: VolumePath, lock: int) -> None:
    """Start a daemon and wait until it is ready; the directory exists and has no daemon.

    :param lock: see commands.run()
    :raises HostError: the daemon is not ready, and does not run
    """
    contents = {_secret_file(directory): path.secret, directory / _CEPH_CONF: path.ceph_conf}
    files = {file: content for file, content in contents.items() if content is not None}
    confined = confinement.sandbox_for(directory, path, *files)
    for file, content in files.items():
        _write_private(file, content)
    _write_private(directory / "pid", "", owner=confined.user)
    image_file(directory).touch(mode=0o600)
    line = command_line(directory, path)
    with _fuse_mounted(image_file(directory), lock) as fuse, _listener(directory) as monitor:
        commands.start_daemon(
            *confined.command_line([fuse, monitor], *line),
            directory=directory,
            log=directory / "log",
            pass_fds=[fuse, monitor],
        )
    wait_until_ready(directory)


def wait_until_ready(directory: Path) -> None:
    """Wait until the daemon is ready that this or another process has started.

    :raises HostError: the daemon is not ready, and does not run
    """
    deadline = time.monotonic() + START_TIMEOUT
    while not is_ready(directory):
        daemons = list_running(directory)
        if daemons and time.monotonic() > deadline:
            stop(directory, force=True)
            raise _unreachable(f"no answer in {START_TIMEOUT:g} s. {_read_log(directory)}")
        if not daemons:
            raise _unreachable(_read_log(directory) or f"{TOOL} has ended without a message.")
        # Not longer: it may be the command that has just started the daemon.
        daemons[0].wait(_POLL_INTERVAL)
    # The daemon has read it, and does not read it again.
    _secret_file(directory).unlink(missing_ok=True)


def stop(directory: Path, *, force: bool = False) -> None:
    """Let the daemons of a directory write what they have, log out and end.

    :param force: kill those that do not end
    :raises HostError: a daemon still runs
    """
    for daemon in _iterate_running(directory):
        _end(daemon, force=force)


def kill(directory: Path) -> None:
    """Kill the daemons of a directory; raises HostError if one still runs."""
    for daemon in _iterate_running(directory):
        if not daemon.end(signal.SIGKILL, KILL_TIMEOUT):
            raise _still_running(daemon)


def _iterate_running(directory: Path) -> Iterator[processes.Process]:
    """List the daemons repeatedly: a process that was found may just start another one.

    :raises HostError: one still runs after TOTAL_END_TIMEOUT
    """
    deadline = time.monotonic() + TOTAL_END_TIMEOUT
    while daemons := list_running(directory):
        for daemon in daemons:
            if time.monotonic() > deadline:
                raise _still_running(daemon)
            yield daemon


def resize(directory: Path) -> int:
    """Let the daemon read the size of the volume; returns it in bytes.

    QEMU's iSCSI initiator reads the capacity at a resize, and takes that size
    regardless of the one in the command: it cannot resize a unit.

    :raises HostError: the daemon does not answer, or refuses
    """
    file = image_file(directory)
    with QmpMonitor(directory / "qmp") as monitor:
        former_size = file.stat().st_size
        monitor.execute("block_resize", {"node-name": _NODE, "size": former_size})
        nodes = monitor.execute("query-named-block-nodes", {"flat": True})
    size = int(next(node["image"]["virtual-size"] for node in nodes if node["node-name"] == _NODE))
    deadline = time.monotonic() + _RESIZE_TIMEOUT
    # The kernel reads the size of a FUSE file once a second.
    while file.stat().st_size != size:
        if time.monotonic() > deadline:
            raise exception.HostError(reason=f"{file} does not grow. Repeat the command.")
        time.sleep(_POLL_INTERVAL)
    return size


def remove_files(directory: Path, *, lock: int) -> None:
    """Remove the mount and the files of a daemon that has ended.

    :param lock: see commands.run()
    :raises HostError: something is left
    """
    unmount_fuse(image_file(directory), lock=lock)
    for name in ("secret", _CEPH_CONF, "pid", "qmp", "log", "lost", "image"):
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()


def is_fuse_mounted(path: Path) -> bool:
    """Return whether a file system is mounted at a path, without access to the path itself."""
    return any(mount.mountpoint == f"{path}" for mount in mountinfo.list_mounts())


def unmount_fuse(path: Path, *, lock: int) -> None:
    """Unmount all that is mounted at a path, also if it is in use; its daemon has ended.

    :param lock: see commands.run()
    :raises HostError: it is still mounted
    """
    while is_fuse_mounted(path):
        try:
            # No daemon answers there any more, so umount must not access the path.
            commands.run("umount", "--lazy", "--no-canonicalize", f"{path}", pass_fds=[lock])
        except exception.HostError:
            if is_fuse_mounted(path):
                raise


class QmpMonitor:
    """A connection to the monitor of a QEMU process; used in a ``with`` statement.

    Source: QEMU Machine Protocol specification.

    :param path: of the socket, which may be longer than a socket's path can be
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        directory = -1
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_QMP_TIMEOUT)
        try:
            directory = os.open(self._path.parent, os.O_PATH | os.O_CLOEXEC)
            self._socket.connect(f"/proc/self/fd/{directory}/{self._path.name}")
            self._responses = self._socket.makefile("r", encoding="utf-8")
            self._responses.readline(_MAX_RESPONSE_BYTES)
        except OSError as error:
            self._socket.close()
            raise _monitor_failed(f"{error}") from error
        finally:
            if directory >= 0:
                os.close(directory)
        self.execute("qmp_capabilities", {})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._responses.close()
        self._socket.close()

    def execute(self, command: str, arguments: dict[str, Any]) -> Any:
        """Run a command and return its answer.

        :raises HostError: it was refused, or not answered
        """
        request = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            response = self._read()
            while "event" in response:
                response = self._read()
        except (OSError, ValueError) as error:
            raise _monitor_failed(f"{error}") from error
        if "error" in response:
            raise _monitor_failed(f"{response['error'].get('desc')}")
        return response.get("return")

    def _read(self) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(self._responses.readline(_MAX_RESPONSE_BYTES))
        return response


def _end(daemon: processes.Process, *, force: bool) -> None:
    if daemon.end(signal.SIGTERM, KILL_TIMEOUT if force else END_TIMEOUT):
        return
    if not force or not daemon.end(signal.SIGKILL, KILL_TIMEOUT):
        raise _still_running(daemon)


def _still_running(daemon: processes.Process) -> exception.HostError:
    return exception.HostError(
        reason=f"{TOOL} (process {daemon.id}) does not end: its backend may be out of reach. "
        "Repeat the detach when it is back, or force it, which loses what was not written."
    )


def _mark(directory: Path) -> list[str]:
    return ["--pidfile", f"{directory / 'pid'}"]


def _secret_file(directory: Path) -> Path:
    return directory / "secret"


def _write_private(path: Path, content: str, owner: int = 0) -> None:
    """Write a file that one user can read, in the place of a former one."""
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as output:
        output.write(content)
        if owner:
            os.fchown(file, owner, owner)


@contextlib.contextmanager
def _fuse_mounted(path: Path, lock: int) -> Iterator[int]:
    """Mount a file system of one file; yields what its daemon reads requests from.

    Only root can use the file: without ``allow_other`` the kernel refuses all other users, who
    could let requests hang.  If no daemon inherits the descriptor, the file answers with errors.

    Source: Linux, Documentation/filesystems/fuse.rst; QEMU, FUSE_MAX_BOUNCE_BYTES.
    """
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        mode = f"fd={fuse},rootmode=100000,user_id=0,group_id=0"
        options = f"{mode},default_permissions,max_read={64 * 2**20},nosuid,nodev,noexec"
        line = ("mount", "--internal-only", "--no-canonicalize", "-t", "fuse", "-o", options)
        commands.run(*line, TOOL, f"{path}", pass_fds=[fuse, lock])
        yield fuse
    finally:
        os.close(fuse)


@contextlib.contextmanager
def _listener(directory: Path) -> Iterator[int]:
    """Listen for connections to the monitor; only root can use its directory."""
    (directory / "qmp").unlink(missing_ok=True)
    folder = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            # The path of a socket is limited in length.
            listener.bind(f"/proc/self/fd/{folder}/qmp")
            listener.listen(1)
            yield listener.fileno()
    finally:
        os.close(folder)


def _unreachable(reason: str) -> exception.HostError:
    return exception.HostError(reason=f"The volume could not be reached: {reason.strip()}")


def _monitor_failed(reason: str) -> exception.HostError:
    return exception.HostError(reason=f"QEMU's storage daemon could not be asked: {reason}.")


def _read_log(directory: Path) -> str:
    try:
        text = (directory / "log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The arguments in it are long, and known to the caller.
    return " ".join(_ARGUMENT.sub("", text).split())[-_MAX_LOG_CHARACTERS:]
