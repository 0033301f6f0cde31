# SPDX-License-Identifier: Apache-2.0
"""Runs commands as processes of their own, without starting Python for each of them.

One process has imported the command as a console script does, and done nothing else.  Each run
is a fork of it, with arguments, environment, standard streams and an exit code of its own: what
the command does to its process, such as reading a configuration, is gone with it.
"""

from collections.abc import Mapping
import contextlib
import importlib
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import unittest

from attachd.tests.wait import TIMEOUT

_SERVE = "import sys; from attachd.tests import commands; commands.serve(sys.argv[1])"


class Command(contextlib.AbstractContextManager["Command"]):
    """What people type; imported once, for a class of tests or for one.

    :param name: the name of the program, which its messages have
    :param module: has its ``main()``
    """

    def __init__(self, name: str, module: str) -> None:
        self._name = name
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVE, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @classmethod
    def of_class(cls, case: type[unittest.TestCase], name: str, module: str) -> "Command":
        """Return one that ends with the tests of a class; for setUpClass()."""
        return case.enterClassContext(cls(name, module))

    def __exit__(self, *_raised: object) -> None:
        self._server.communicate()

    def run(
        self, *arguments: object, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end.

        :param env: None: that of this process
        :returns: as subprocess.run() does; a process that hangs is killed by SIGALRM
        """
        typed = [self._name, *map(str, arguments)]
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("out", "err")]
            environment = dict(os.environ if env is None else env)
            wanted = [typed, environment, str(Path.cwd()), *map(str, files)]
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.write(f"{json.dumps(wanted)}\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            printed = [each.read_text("utf-8") for each in files]
        return subprocess.CompletedProcess(typed, code, *printed)


def serve(module: str) -> None:
    """Fork for each line that is read, and say how that process has ended."""
    main = importlib.import_module(module).main
    for line in sys.stdin:
        child = os.fork()
        wanted = json.loads(line)
        if child == 0:
            _become(*wanted)
            sys.exit(main())
        _child, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(typed: list[str], env: dict[str, str], folder: str, out: str, err: str) -> None:
    signal.alarm(int(TIMEOUT))
    sys.argv[:] = typed
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for number, file, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(file, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
