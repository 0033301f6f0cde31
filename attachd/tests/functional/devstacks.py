# SPDX-License-Identifier: Apache-2.0
"""A devstack for tests: runs the phases of the plug-in in devstack/; for test_devstack.py.

It is bash that runs them, ``attachd/tests/devstack/run.sh``, with functions as devstack has them,
or with those of devstack itself where ``ATTACHD_TEST_DEVSTACK`` names the folder of a checkout.
"""

import os
from pathlib import Path
import shlex
import shutil
import signal
import subprocess
import tempfile

import testtools

from attachd.tests.functional import keystones, processes
from attachd.tests.wait import TIMEOUT

RUN = Path(__file__).parents[1] / "devstack" / "run.sh"
GENUINE = os.environ.get("ATTACHD_TEST_DEVSTACK", "")
# devstack itself would install it.
TEMPEST = "" if GENUINE else "tempest,"

CREDENTIALS = {
    "DATABASE_BACKENDS": "mysql",
    "DATABASE_PASSWORD": "secret",
    "DATABASE_TYPE": "mysql",
    "DATABASE_USER": "nobody",
    "KEYSTONE_SERVICE_URI": "http://127.0.0.1:1/v3",
    "MYSQL_HOST": "127.0.0.1",
    "RABBIT_HOST": "127.0.0.1",
    "RABBIT_PASSWORD": "guest",
    "RABBIT_USERID": "guest",
    "SERVICE_DOMAIN_NAME": "Default",
    "SERVICE_PASSWORD": "secret",
    "SERVICE_PROJECT_NAME": "service",
}


class Site:
    """The folder of a devstack, and what its local.conf says."""

    def __init__(self, test: testtools.TestCase, **settings: object) -> None:
        self._test = test
        # The path of tgtd's socket has room for 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="attachd-test-", dir="/tmp"))
        test.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        test.addCleanup(self._kill)
        self.settings: dict[str, object] = {
            "ATTACHD_DIR": processes.ROOT,
            "ATTACHD_CONF_DIR": self.folder / "etc",
            "DATA_DIR": self.folder / "data",
            "DEST": self.folder / "dest",
            "DEVSTACK_FOLDER": GENUINE,
            "DISABLED_SERVICES": "",
            "ENABLED_SERVICES": f"key,mysql,rabbit,n-api,{TEMPEST}c-api,c-sch,c-vol",
            "ENABLE_DEBUG_LOG_LEVEL": "False",
            "HOST_IP": "127.0.0.1",
            "NOVA_CONF": self.folder / "nova.conf",
            "REGION_NAME": keystones.REGION,
            "SERVICE_HOST": "127.0.0.1",
            "SERVICE_LISTEN_ADDRESS": "127.0.0.1",
            "SERVICE_LOCAL_HOST": "127.0.0.1",
            "SERVICE_PROTOCOL": "http",
            "SERVICE_TIMEOUT": "120",
            "STACK_USER": "root",
            "TEMPEST_CONFIG": self.folder / "tempest.conf",
            **settings,
        }
        self.environment = processes.environment(HOME=str(self.folder))

    def run(self, *phase: str) -> str:
        """Run a phase, and return what it says."""
        lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in self.settings.items()]
        (self.folder / "localrc").write_text("".join(lines))

        done = subprocess.run(
            ["bash", str(RUN), str(self.folder), *phase],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self._test.assertEqual(0, done.returncode, f"{phase}\n{done.stdout}\n{self.logs}")
        return done.stdout

    @property
    def variables(self) -> dict[str, str]:
        """What the plug-in's settings made of the variables, in the last phase."""
        text = (self.folder / "variables").read_text()
        return dict(line.partition("=")[::2] for line in text.splitlines() if line[:1].isalpha())

    @property
    def services(self) -> set[str]:
        """What was enabled in the last phase."""
        return set(self.variables["ENABLED_SERVICES"].strip("'").split(","))

    @property
    def calls(self) -> list[str]:
        """What was left out of what the plug-in wanted."""
        return (self.folder / "calls").read_text().splitlines()

    @property
    def logs(self) -> str:
        """What the services have written last."""
        files = sorted(self.folder.glob("units/*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text()[-10_000:]}" for file in files)

    @property
    def running(self) -> dict[str, list[int]]:
        """The ids of processes by the unit that they belong to."""
        found: dict[str, list[int]] = {}
        leaders = {int(file.read_text()): file.stem for file in self.folder.glob("units/*.leader")}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(") ")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) in leaders and state not in "ZX":
                unit = leaders[int(session)].removeprefix("devstack@")
                found.setdefault(unit, []).append(int(stat.parent.name))
        return found

    def _kill(self) -> None:
        for pids in self.running.values():
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
