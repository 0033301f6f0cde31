# SPDX-License-Identifier: Apache-2.0
"""The commands attachd, openstack and cinder, loaded once; for tests that call them many times.

To load one takes a second of a processor, which is most of what it does.  So for each a process
that has loaded it waits for calls, and forks: what runs in the child is the ``main()`` that the
command itself runs, with the arguments, environment, folder, input and output of the caller.

    processes.environment(PATH=commands.path(self), ...)
"""

import contextlib
import importlib
from importlib import metadata
import os
from pathlib import Path
import select
import signal
import socket
import stat
import sys
import traceback
from types import ModuleType
from typing import NoReturn
import unittest

from attachd.tests.functional import processes
from attachd.tests.lasting import Lasting

_MODULES = {
    "attachd": "attachd.cli.start",
    "cinder": "cinderclient.shell",
    "openstack": "openstackclient.shell",
}
_LATE = {"attachd": ("attachd.cli.app",), "openstack": (), "cinder": ()}
"""Modules that ``main()`` imports."""
_PLUGINS = {
    "attachd": ("attachd.cli", "cliff.formatter.list", "cliff.formatter.show"),
    "openstack": ("openstack.cli.base", "openstack.volume.v3", "cliff.formatter.list"),
    "cinder": (),
}
"""Groups of entry points of which a call loads some."""

_PATHS = "openstack.config.loader"
"""The module that notes, when it is loaded, which folder and home it was loaded in."""

_LENGTH = 8

# Isolated and without site-packages, so that it starts in no time.
_CALLER = """\
#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as caller:
    caller.connect({address!r})
    variables = [f"{{name}}={{value}}" for name, value in os.environ.items()]
    words = [os.getcwd(), str(len(sys.argv)), *sys.argv, *variables]
    text = "\\0".join(words)
    sent = os.fsencode(text)
    socket.send_fds(caller, [len(sent).to_bytes({length}, "big")], [0, 1, 2])
    caller.sendall(sent)
    status = caller.recv(1)
sys.exit(status[0] if status else 1)
"""


def path(test: unittest.TestCase) -> str:
    """Return a PATH that begins with the folder of the commands of this test process."""
    if not _shared:
        _shared.append(_start(Lasting(test)))
    return os.pathsep.join([str(_shared[0]), processes.environment()["PATH"]])


_shared: list[Path] = []


def _start(test: unittest.TestCase) -> Path:
    folder = processes.folder(test)
    started = []
    for name in _MODULES:
        address = str(folder / f"{name}.socket")
        caller = folder / name
        caller.write_text(_CALLER.format(python=sys.executable, address=address, length=_LENGTH))
        caller.chmod(stat.S_IRWXU)
        command = [sys.executable, "-P", str(Path(__file__)), name, address]
        # A home might have settings.
        env = processes.environment(HOME=str(folder), PYTHONPATH=str(processes.ROOT))
        started.append(processes.Process(test, *command, env=env))
    for each in started:
        each.wait_for("ready")
    return folder


def main() -> None:
    """Wait for callers of one command until the parent is gone."""
    parent = os.getppid()
    name, address = sys.argv[1:]
    # Read when the modules are loaded.
    sys.argv = [name]
    module = importlib.import_module(_MODULES[name])
    for late in _LATE[name]:
        importlib.import_module(late)
    for group in _PLUGINS[name]:
        for each in metadata.entry_points(group=group):
            each.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while os.getppid() == parent:
            if select.select([listener], [], [], 1)[0]:
                caller, _address = listener.accept()
                if not os.fork():
                    _serve(caller, module)
                caller.close()


def _serve(caller: socket.socket, module: ModuleType) -> NoReturn:
    status = 1
    with contextlib.suppress(OSError):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become(caller)
        status = _run(module)
        caller.send(bytes([status]))
    os._exit(status)


def _become(caller: socket.socket) -> None:
    """Take the caller's place."""
    length, files, _flags, _address = socket.recv_fds(caller, _LENGTH, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        text += caller.recv(2**16)
    folder, count, *words = os.fsdecode(text).split("\0")
    sys.argv = words[: int(count)]
    os.environ.clear()
    for each in words[int(count) :]:
        variable, _, value = each.partition("=")
        os.environ[variable] = value
    os.chdir(folder)
    if _PATHS in sys.modules:
        importlib.reload(sys.modules[_PATHS])


def _run(module: ModuleType) -> int:
    try:
        sys.exit(module.main())
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 255
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:  # noqa: BLE001  as the interpreter would
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
