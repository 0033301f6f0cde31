# SPDX-License-Identifier: Apache-2.0
"""Units of systemd without systemd: runs what a unit's file says, as its account.

What is done: User, Group, Environment, RuntimeDirectory, StateDirectory, UMask, no capabilities
and no new privileges, Type=notify, KillSignal, ExecReload, and drop-ins.  What is not: everything
that hides or protects parts of the system.
"""

from collections.abc import Callable, Mapping
import os
from pathlib import Path
import shlex
import shutil
import signal
import socket
import unittest

from attachd.tests import machine
from attachd.tests.functional import processes
from attachd.tests.wait import TIMEOUT

Unit = dict[str, list[str]]


def read(file: Path) -> Unit:
    """Return the settings of a unit with its drop-ins; an empty value forgets those before it."""
    found: Unit = {}
    for each in (file, *sorted(file.with_name(f"{file.name}.d").glob("*.conf"))):
        for line in each.read_text(encoding="utf-8").splitlines():
            name, equals, value = line.partition("=")
            if not equals or line.startswith(("#", ";")):
                continue
            if value:
                found.setdefault(name, []).append(value)
            else:
                found[name] = []
    return found


class Units:
    """The units of a folder.

    :ivar running: their processes, by the name of the unit without its ending
    """

    def __init__(
        self,
        test: unittest.TestCase,
        root: Path,
        account: Callable[[str], int],
        environment: Mapping[str, str],
    ) -> None:
        """Tell where they live.

        :param root: has etc/systemd/system, run and var/lib
        :param account: returns the id of a user, and of the group of the same name
        """
        self._test = test
        self._root = root
        self._account = account
        self._environment = environment
        self._setpriv = machine.need_tool(test, "setpriv")
        self._enabled: set[str] = set()
        self.running: dict[str, processes.Process] = {}

    def file(self, name: str) -> Path:
        """Return the path of a unit's file, whether it is there or not."""
        return self._root / "etc/systemd/system" / f"{name}.service"

    def enabled(self) -> set[str]:
        """Return the names of those that would start with the machine."""
        return set(self._enabled)

    def control(self, *words: str) -> None:
        """Do what ``systemctl`` does with these words."""
        verb, *rest = words
        names = [each for each in rest if each != "--now"]
        for name in names:
            self._test.assertTrue(self.file(name).is_file(), f"there is no unit {name}")
        if verb == "enable":
            self._enabled.update(names)
        elif verb == "disable":
            self._enabled.difference_update(names)
        for name in names:
            if verb in {"stop", "restart"} or (verb == "disable" and "--now" in rest):
                self.stop(name)
            if verb in {"start", "restart"} or (verb == "enable" and "--now" in rest):
                self.start(name)

    def start(self, name: str) -> None:
        """Start a unit; it is up when this returns, as far as it tells."""
        unit = read(self.file(name))
        environment = dict(self._environment)
        for each in unit.get("Environment", []):
            for part in shlex.split(each):
                variable, _, value = part.partition("=")
                environment[variable] = value
        user = self._account(unit.get("User", ["root"])[-1])
        for kind, above in (("RuntimeDirectory", "run"), ("StateDirectory", "var/lib")):
            mode = int(unit.get(f"{kind}Mode", ["0755"])[-1], 8)
            for folder in unit.get(kind, []):
                self._make(self._root / above / folder, mode, user)
        told = self._listen(environment) if unit.get("Type") == ["notify"] else None
        account = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        rights = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
        mask = unit.get("UMask", ["0022"])[-1]
        (command,) = unit["ExecStart"]
        self.running[name] = processes.Process(
            self._test,
            *("sh", "-c", f'umask {mask}; exec "$@"', "sh"),
            *(self._setpriv, *account, *rights, *shlex.split(command)),
            env=environment,
            cwd=self._root,
        )
        if told:
            self._wait_until_told(told, name)

    def stop(self, name: str) -> None:
        """Stop a unit as systemd does; what it leaves behind is removed as the unit says."""
        unit = read(self.file(name))
        number = signal.Signals[unit.get("KillSignal", ["SIGTERM"])[-1]]
        process = self.running.pop(name)
        code = process.end(number)
        expected = {0} if number is signal.SIGTERM else {-number}
        self._test.assertIn(code, expected, f"{name}:\n{process.output}")
        process.kill()
        if unit.get("RuntimeDirectoryPreserve", ["no"])[-1] == "no":
            for folder in unit.get("RuntimeDirectory", []):
                shutil.rmtree(self._root / "run" / folder)

    def _make(self, folder: Path, mode: int, user: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        os.chown(folder, user, user)

    def _listen(self, environment: dict[str, str]) -> socket.socket:
        """Make the socket at which a unit tells that it is up."""
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._test.addCleanup(told.close)
        path = self._root / "run" / f"notify-{len(self.running)}"
        path.unlink(missing_ok=True)
        told.bind(str(path))
        path.chmod(0o777)
        told.settimeout(TIMEOUT)
        environment["NOTIFY_SOCKET"] = str(path)
        return told

    def _wait_until_told(self, told: socket.socket, name: str) -> None:
        try:
            while b"READY=1" not in told.recv(4096):
                pass
        except TimeoutError:
            self._test.fail(f"{name} never told that it is up:\n{self.running[name].output}")
        finally:
            told.close()
