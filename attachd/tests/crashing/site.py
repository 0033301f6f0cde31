# SPDX-License-Identifier: Apache-2.0
"""A deployment whose API and manager can be killed at any point, and are there again at once.

RabbitMQ, a real database, tgtd, and a nursery that starts API and managers.  The test's process
is configured for the same database, and looks at it without asking the API.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import json
import os
from pathlib import Path
import select
import signal
import subprocess
import sys
from typing import Any
import unittest

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.tests import brokers, databases, machine, threeway
from attachd.tests.crashing import points
from attachd.tests.crashing.asking import Client
from attachd.tests.crashing.points import Plan, Point
from attachd.tests.functional import processes
from attachd.tests.functional.tgtd import Tgtd
from attachd.tests.wait import TIMEOUT, wait_until

ATTACH_TIMEOUT = 60
"""Seconds that the API waits for a manager's answer, and keeps a thread of a caller that left."""

_CONFIGURATION = """\
[DEFAULT]
host = test
state_path = {folder}/state
transport_url = {broker}
enabled_backends = tgt
debug = {debug}

[database]
connection = {database}
connect_timeout = 60
read_timeout = 120

[manager]
report_interval = 1
service_down_time = 600

[rpc]
attach_timeout = {attach_timeout}

[quota]
quota_volumes = -1
quota_gigabytes = -1

[tgt]
driver = tgt
"""


@dataclasses.dataclass(frozen=True)
class Passed:
    """A line of the log of a plan.

    :ivar what: "begin CALL", "pass" or "end CALL"
    """

    what: str
    role: str
    pid: int
    point: Point | None


class Member:
    """An API or a manager.

    :ivar role: "api" or "manager"
    """

    def __init__(self, role: str, pid: int) -> None:
        self.role = role
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def has_ended(self, seconds: float = 0) -> bool:
        """Tell whether it is dead, or dies within so many seconds."""
        ready, _, _ = select.select([self._handle], [], [], seconds)
        return bool(ready)

    def kill(self) -> None:
        """End it, and wait until it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self.has_ended(TIMEOUT)

    def close(self) -> None:
        """Forget it."""
        os.close(self._handle)


class Site:
    """The deployment.

    :ivar client: of its API
    :ivar members: the API and the managers that run
    """

    def __init__(
        self,
        test: unittest.TestCase,
        kind: str,
        *,
        managers: int = 1,
        without: Sequence[str] = (),
    ) -> None:
        """Start it all; it ends with the test.

        :param kind: of the database
        :param without: of nursery.SWITCHES
        """
        self._test = test
        self.folder = processes.folder(test)
        self.database = databases.use(test, kind)
        self.tgtd = Tgtd(test)
        test.addCleanup(self.tgtd.cleanUp)
        self.tgtd.setUp()
        Plan().write(self.folder)
        self._serial = 0
        self._types: dict[str, str] = {}
        self._nursery = self._start_nursery(brokers.url(test), without)
        self.client = Client(f"http://127.0.0.1:{self._line()}/v3")
        self.members = [self._start("api")]
        self.members += [self._start("manager") for _ in range(managers)]
        self._wait_until_served()

    def _start_nursery(self, broker: str, without: Sequence[str]) -> subprocess.Popen[str]:
        configuration = self.folder / "attachd.conf"
        text = _CONFIGURATION.format(
            folder=self.folder,
            broker=broker,
            database=self.database,
            attach_timeout=ATTACH_TIMEOUT,
            debug="ATTACHD_TEST_DEBUG" in os.environ,
        )
        options = [f"{name} = {value}\n" for name, value in self.tgtd.options.items()]
        configuration.write_text(
            processes.LONG_TIMEOUTS + text + "".join(options), encoding="utf-8"
        )
        bound = [machine.need_tool(self._test, "setpriv"), "--pdeathsig=KILL"]
        command = [sys.executable, "-m", "attachd.tests.crashing.nursery"]
        with (self.folder / "log.nursery").open("wb") as log:
            nursery = subprocess.Popen(
                [*bound, *command, f"{configuration}", f"{self.folder}", *without],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=processes.environment(HOME=f"{self.folder}"),
                cwd=processes.ROOT,
                text=True,
            )
        self._test.addCleanup(self._end, nursery)
        return nursery

    def end(self) -> None:
        """Kill API and managers, for good."""
        while self.members:
            member = self.members.pop()
            member.kill()
            member.close()

    def _end(self, nursery: subprocess.Popen[str]) -> None:
        self.end()
        nursery.communicate(timeout=TIMEOUT)

    def _line(self) -> str:
        assert self._nursery.stdout is not None
        line = self._nursery.stdout.readline()
        assert line, (self.folder / "log.nursery").read_text()
        return line.strip()

    def _start(self, role: str) -> Member:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(f"{role}\n")
        self._nursery.stdin.flush()
        return Member(role, int(self._line()))

    def _wait_until_served(self) -> None:
        wait_until(self._is_served, self.logs)

    def _is_served(self) -> bool:
        answer = self.client.ask("GET", "/os-services")
        return any(each["state"] == "up" for each in answer.body["services"])

    def arm(self, point: Point | None = None, victim: points.Victim = "process") -> int:
        """Have the points of the next call be recorded, and a process die at one of them.

        :returns: the plan's number
        """
        self._serial += 1
        Plan(self._serial, point, victim).write(self.folder)
        return self._serial

    def disarm(self) -> None:
        """Have nothing be recorded and nobody die."""
        Plan().write(self.folder)

    def dead(self) -> Member | None:
        """Return somebody who has died, if there is one."""
        return next((each for each in self.members if each.has_ended()), None)

    def replace(self, dead: Member) -> None:
        """Start another one in the place of a dead one."""
        self.bury(dead)
        self.members.append(self._start(dead.role))

    def bury(self, dead: Member) -> None:
        """Do without somebody who has died."""
        self.members.remove(dead)
        dead.close()

    def passed(self, serial: int) -> list[Passed]:
        """Return what was recorded under a plan so far."""
        log = points.log_of(self.folder, serial)
        if not log.exists():
            return []
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        return [
            Passed(what, role, pid, None if point is None else Point(*point))
            for what, role, pid, point in lines
        ]

    def has_died(self, serial: int) -> bool:
        """Tell whether a plan has had its victim."""
        return points.death_of(self.folder, serial).exists()

    def unfinished(self) -> list[str]:
        """Tell of the rows that are half-way."""
        return threeway.unfinished(self.database)

    def differences(self) -> list[str]:
        """Tell in what rows, targets and sessions differ."""
        try:
            return threeway.of_tgt(self.database, self.tgtd)
        except subprocess.CalledProcessError as error:
            # Somebody has begun to work just now: a message came to the next manager.
            return [f"a target went while it was looked at: {error}"]

    def forget(self) -> None:
        """Remove all volumes and attachments behind everybody's back, and what is at tgtd."""
        with session.writer() as connection:
            for table in (models.attachments, models.volumes):
                connection.execute(sa.delete(table))
        self.tgtd.restart()
        # The first report may have been begun before, and tell that the backend is down.
        for _ in range(2):
            self._wait_for_report()

    def _wait_for_report(self) -> None:
        before = self._reports()

        def has_come() -> bool:
            now = self._reports()
            return now != before and all(up for _seen_at, up in now)

        wait_until(has_come, self.logs)

    @staticmethod
    def _reports() -> list[tuple[Any, bool]]:
        statement = sa.select(models.services.c.seen_at, models.services.c.up)
        with session.reader() as connection:
            return [(row.seen_at, row.up) for row in connection.execute(statement)]

    def type_id(self, name: str) -> str:
        """Return the id of a volume type; "shared" is that of volumes for several hosts."""
        if name not in self._types:
            specs = {"multiattach": "<is> True"} if name == "shared" else {}
            body = {"volume_type": {"name": name, "extra_specs": specs}}
            self._types[name] = self.client.get("POST", "/types", body)["volume_type"]["id"]
        return self._types[name]

    @staticmethod
    def volumes_named(name: str) -> list[dict[str, Any]]:
        """Return the rows of the volumes of a name."""
        statement = sa.select(models.volumes).where(models.volumes.c.name == name)
        with session.reader() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]

    def logs(self) -> str:
        """Return the ends of what all members that run have logged."""
        return "\n".join(
            f"{each.role} {each.pid}:\n{self._log(each)[-8000:]}" for each in self.members
        )

    def _log(self, member: Member) -> str:
        path = Path(self.folder / f"log.{member.role}.{member.pid}")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
