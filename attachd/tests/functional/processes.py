# SPDX-License-Identifier: Apache-2.0
"""Real processes for tests: all-in-one, or a manager and a WSGI server on real services.

Each has a free port, a folder, a database and a virtual host of its own.  All of it is gone
when the test is over, whatever happened.
"""

from collections.abc import Collection, Mapping
import contextlib
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any
import unittest

import requests
import testtools
from testtools import content

from attachd.tests import brokers, databases, wait

_SHOWN = 20_000

ROOT = Path(__file__).parents[3]
"""The source tree, with etc/."""


def folder(test: unittest.TestCase) -> Path:
    """Make an empty folder that goes with the test."""
    made = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(made.cleanup)
    return Path(made.name)


def script(name: str) -> str:
    """Return the path of a command of this Python environment."""
    return str(Path(sys.executable).parent / name)


def environment(**more: str) -> dict[str, str]:
    """Return our environment without what concerns clients, services or proxies."""
    foreign = re.compile(r"OS_|CINDER_|ATTACHD_CONFIG|XDG_|NOTIFY_SOCKET|.*_proxy$", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not foreign.match(name)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1", **more}


class Process:
    """A process and all its children."""

    def __init__(
        self,
        test: unittest.TestCase,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._test = test
        self._log = folder(test) / "log"
        with self._log.open("wb") as log:
            # A session of its own, so that its children can be found and ended with it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(env or environment()),
                cwd=cwd,
                start_new_session=True,
            )
        self.pid = self._process.pid
        test.addCleanup(self.kill)

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def show_in_failures(self, test: testtools.TestCase) -> None:
        """Make what it has written last a part of the test's failures."""

        def show(_error: object) -> None:
            test.addDetail(f"log of {self.pid}", content.text_content(self.output[-_SHOWN:]))

        test.addOnException(show)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it has written something that matches."""

        def written_or_ended() -> list[re.Match[str] | None]:
            # Checked before its output is, so that nothing is overlooked at the end.
            ended = not self.running
            match = re.search(pattern, self.output)
            return [match] if match or ended else []

        (match,) = wait.wait_until(
            written_or_ended, lambda: f"it never wrote {pattern!r}:\n{self.output}"
        )
        if match is None:
            self._test.fail(f"it ended and never wrote {pattern!r}:\n{self.output}")
        return match

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its children."""
        os.kill(self.pid, number)

    def wait(self, timeout: float = wait.TIMEOUT) -> int:
        """Wait until it has ended and return its exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._test.fail(f"it did not end:\n{self.output}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit code."""
        self.send(number)
        return self.wait()

    def kill(self) -> None:
        """End it and all its children, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(wait.TIMEOUT)


LONG_TIMEOUTS = """
[rpc]
attach_timeout = 240
max_calls_unresponsive = 1000
[database]
retry_timeout = 120
"""
"""Configuration with which a slow machine is no reason to give up."""


class AllInOne(Process):
    """attachd-all-in-one, listening.

    It has long time-outs and a folder of its own for names of devices, except where the test's
    ``--config-file`` says otherwise.

    :ivar state: its folder
    :ivar url: without a slash at its end
    """

    def __init__(self, test: unittest.TestCase, state: Path, *arguments: str) -> None:
        self.state = state
        home = folder(test)
        base = home / "base.conf"
        base.write_text(
            f"{LONG_TIMEOUTS}[file]\nfile_devices_dir = {home}/devices\n", encoding="utf-8"
        )
        super().__init__(
            test,
            script("attachd-all-in-one"),
            "--port=0",
            f"--state-dir={state}",
            f"--config-file={base}",
            *arguments,
            env=environment(HOME=str(home)),
        )
        self.url = self.wait_for(r"listens on (http://\S+)/ ")[1]
        self.wait_for("finds everything as it was")


_CONFIGURATION = """\
[DEFAULT]
host = test
state_path = {folder}/state
transport_url = {broker}
enabled_backends = {backend}

[database]
connection = {database}
connect_timeout = 60
read_timeout = 120

[manager]
workers = {workers}
report_interval = 1
service_down_time = 600

[quota]
quota_volumes = -1
quota_gigabytes = -1

[file]
driver = file
file_loop_devices = never

[slow]
driver = fake
fake_delay = 2
"""


_CORES = re.compile(r"mapped \d+ bytes .* for (\d+) cores")
_SPAWNED = re.compile(r"spawned uWSGI worker \d+ \(.*cores: (\d+)\)")
_LOADED = "WSGI app 0 (mountpoint='') ready"


def _all_loaded(output: str) -> bool:
    """Tell whether all workers of uWSGI were started, and each of them has loaded the API."""
    cores, spawned = _CORES.search(output), _SPAWNED.findall(output)
    return (
        cores is not None
        and "(master-start)" in output
        and sum(map(int, spawned)) >= int(cores[1])
        and output.count(_LOADED) >= len(spawned)
    )


class Deployment:
    """A manager and an API in processes of their own, RabbitMQ and a real database.

    :ivar url: of the API, without a slash at its end, once one is started
    :ivar server: the API's process
    :ivar database: its URL
    """

    def __init__(
        self, test: unittest.TestCase, database: str, backend: str = "file", workers: int = 2
    ) -> None:
        self._test = test
        self.folder = folder(test)
        self.url = ""
        self.server: Process | None = None
        served = database != "sqlite"
        self.database = (databases.synced if served else databases.url)(test, database)
        configuration = self.folder / "attachd.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                folder=self.folder,
                broker=brokers.url(test),
                backend=backend,
                database=self.database,
                workers=workers,
            )
            + LONG_TIMEOUTS,
            encoding="utf-8",
        )
        self._argument = f"--config-file={configuration}"
        self._environment = environment(
            ATTACHD_CONFIG_FILES=str(configuration), HOME=str(self.folder)
        )
        self._code = self._environment.get("PYTHONPATH")
        if not served:
            self.run("attachd-manage", self._argument, "db", "sync")

    def use_code(self, top: Path) -> None:
        """Start from now on the attachd of another source tree."""
        self._environment = {**self._environment, "PYTHONPATH": str(top)}

    def use_own_code(self) -> None:
        """Start from now on what :meth:`use_code` was not called for."""
        self._environment = {**self._environment, "PYTHONPATH": self._code or ""}

    def configure(self, text: str) -> None:
        """Add to the configuration of what is started from now on."""
        with (self.folder / "attachd.conf").open("a", encoding="utf-8") as configuration:
            configuration.write(f"\n{text}\n")

    def run(self, name: str, *arguments: str, codes: Collection[int] = (0,)) -> str:
        """Run a command to its end and return what it wrote.

        :param codes: which exit codes it may have
        """
        done = subprocess.run(
            [script(name), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=wait.TIMEOUT,
            check=False,
        )
        self._test.assertIn(done.returncode, codes, done.stdout + done.stderr)
        return done.stdout

    def checks(self) -> dict[str, int]:
        """Return what attachd-status says of each check: 0 ready, 1 look, 2 not ready."""
        text = self.run(
            "attachd-status", self._argument, "upgrade", "check", "--json", codes=(0, 1, 2)
        )
        return {each["check"]: each["result"] for each in json.loads(text)["checks"]}

    def start_manager(self) -> Process:
        """Start attachd-manager; all its workers listen when this returns."""
        process = Process(
            self._test, script("attachd-manager"), self._argument, env=self._environment
        )
        process.wait_for("(?s)" + ".*".join(["Serving backend"] * self._workers()))
        return process

    def _workers(self) -> int:
        text = (self.folder / "attachd.conf").read_text(encoding="utf-8")
        found = re.search(r"^workers = (\d+)$", text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def start_gunicorn(self) -> Process:
        """Start the API under gunicorn with the configuration in etc/."""
        self.server = process = Process(
            self._test,
            script("gunicorn"),
            f"--config={ROOT / 'etc/attachd/gunicorn.conf.py'}",
            "--bind=127.0.0.1:0",
            env=self._environment,
            # Where it runs, it looks for modules before it looks anywhere else.
            cwd=self.folder,
        )
        self.url = process.wait_for(r"Listening at: (http://127.0.0.1:\d+)")[1]
        self._wait_until_it_answers()
        return process

    def start_uwsgi(self, *arguments: str) -> Process:
        """Start the API under uWSGI with the configuration in etc/."""
        self.server = process = Process(
            self._test,
            script("uwsgi"),
            f"--ini={ROOT / 'etc/attachd/uwsgi.ini'}",
            "--http-socket=127.0.0.1:0",
            *arguments,
            env=self._environment,
        )
        address = process.wait_for(r"bound to TCP address (127.0.0.1:\d+) \(port auto")[1]
        self.url = f"http://{address}"
        self._wait_until_it_answers()
        # A worker that still loads does not hear that it is to end, and its master waits for it.
        wait.wait_until(lambda: _all_loaded(process.output), lambda: process.output)
        return process

    def _wait_until_it_answers(self) -> None:
        # Connections wait in the socket until a worker has loaded the API.
        answer = requests.get(f"{self.url}/", timeout=wait.TIMEOUT)
        self._test.assertEqual(300, answer.status_code, answer.text)

    def wait_until_served(self) -> None:
        """Wait until the API knows that a manager is up."""
        wait.wait_until(lambda: "up" in self._service_states(), self._service_states)

    def _service_states(self) -> list[str]:
        return [each["state"] for each in self.get("/v3/os-services")["services"]]

    def get(self, path: str) -> Any:
        """Read from the API."""
        answer = requests.get(f"{self.url}{path}", timeout=wait.TIMEOUT)
        self._test.assertEqual(200, answer.status_code, answer.text)
        return answer.json()
