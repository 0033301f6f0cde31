# SPDX-License-Identifier: Apache-2.0
"""A deployment whose API and managers can be killed at any point, and start again at once.

RabbitMQ, a real database, tgtd, and a fork server of API and managers.  The test's process is
configured for the same database, and reads it without the API.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
from typing import Any
import unittest

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.tests.crash.client import Client
from attachd.tests.fixtures import (
    consistency,
    crash_points,
    databases,
    deployments,
    processes,
    rabbitmq,
    tgtd,
)
from attachd.tests.fixtures.crash_points import Plan, Point
from attachd.tests.fixtures.fork_server import ForkedProcess, ForkServer
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import wait_until

ATTACH_TIMEOUT = 60
"""Seconds that the API waits for a manager, and keeps a thread of a client that disconnected."""

_SETTINGS = """
[DEFAULT]
debug = {debug}

[rpc]
attach_timeout = {attach_timeout}
# Calls of managers that die are in progress until they time out, and all are of one project.
max_calls = 1000
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


class ForkedService(ForkedProcess):
    """An API or a manager.

    :ivar role: "api" or "manager"
    """

    def __init__(self, deployment: "CrashDeployment", role: str, pid: int) -> None:
        super().__init__(pid, crash_points.service_log(deployment.folder, role, pid))
        self.role = role


class CrashDeployment:
    """The deployment; all of it runs after the constructor.

    :cvar BACKEND: the name of the backend, and of its driver
    :ivar client: of its API
    :ivar members: the API and the managers that run
    """

    BACKEND = "tgt"

    def __init__(
        self,
        test: unittest.TestCase,
        kind: str,
        *,
        managers: int = 1,
        without: Sequence[str] = (),
    ) -> None:
        """Start everything; it ends with the test.

        :param kind: of the database
        :param without: of fork_server.SWITCHES
        """
        self.folder = temp_dir(test)
        self.database = databases.use(test, kind)
        storage = self._start_storage(test)
        Plan().write(self.folder)
        self._serial = 0
        self._types: dict[str, str] = {}
        configuration = deployments.write_configuration(
            self.folder,
            deployments.SLOW_DATABASE,
            deployments.LONG_TIMEOUTS,
            _SETTINGS.format(
                attach_timeout=ATTACH_TIMEOUT, debug="ATTACHD_TEST_DEBUG" in os.environ
            ),
            storage,
            broker=rabbitmq.create_vhost(test),
            database=self.database,
            backend=self.BACKEND,
        )
        arguments = (f"{configuration}", f"{self.folder}", *without)
        self._server = ForkServer(test, "attachd.tests.crash.fork_server", *arguments)
        self.client = Client(f"http://127.0.0.1:{self._server.read_line()}/v3")
        self.members: list[ForkedService] = []
        test.addCleanup(self.end)
        for role in ("api", *["manager"] * managers):
            self._start(role)
        wait_until(self._is_served, self.logs)

    def _start_storage(self, test: unittest.TestCase) -> str:
        """Start the storage, and return the configuration of the backend."""
        self.tgtd = tgtd.start(test)
        return self.tgtd.configuration

    def _storage_pid(self) -> int:
        return self.tgtd.pid

    def end(self) -> None:
        """Kill API and managers, without replacing them."""
        while self.members:
            member = self.members.pop()
            member.kill()
            member.close()

    def _start(self, role: str) -> None:
        self.members.append(ForkedService(self, role, self._server.fork(role)))

    def _is_served(self) -> bool:
        response = self.client.request("GET", "/os-services")
        return any(service["state"] == "up" for service in response.body["services"])

    def arm(self, point: Point | None = None, victim: crash_points.Victim = "process") -> int:
        """Record the points of the next call, and kill a process at one of them.

        :returns: the plan's number
        """
        self._serial += 1
        Plan(self._serial, point, victim, self._storage_pid()).write(self.folder)
        return self._serial

    def disarm(self) -> None:
        """Record no points and kill no process."""
        Plan().write(self.folder)

    def ended_member(self) -> ForkedService | None:
        """Return a member that has ended, if there is one."""
        return next((member for member in self.members if member.has_ended()), None)

    def replace(self, ended: ForkedService) -> None:
        """Start another member in place of one that has ended."""
        self.members.remove(ended)
        ended.close()
        self._start(ended.role)

    def passed(self, serial: int) -> list[Passed]:
        """Return what was recorded under a plan so far."""
        log = crash_points.log_of(self.folder, serial)
        if not log.exists():
            return []
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        return [
            Passed(what, role, pid, None if point is None else Point(*point))
            for what, role, pid, point in lines
        ]

    def has_died(self, serial: int) -> bool:
        """Return whether a process was killed under a plan."""
        return crash_points.crash_file(self.folder, serial).exists()

    def restart_storage(self, serial: int) -> None:
        """Start the storage daemon again that was killed under a plan; it is empty."""
        self.tgtd.restart()
        crash_points.restart_file(self.folder, serial).touch()

    def down(self) -> list[str]:
        """Return sentences about backends that are reported to be down."""
        return consistency.find_down(self.database)

    def uncertain(self) -> list[str]:
        """Return sentences about the rows whose operation has failed with an unknown result."""
        return consistency.find_uncertain(self.database)

    def unfinished(self) -> list[str]:
        """Return sentences about the rows whose operation is in progress."""
        return consistency.find_unfinished(self.database)

    def differences(self) -> list[str]:
        """Return sentences about differences between rows, targets and sessions."""
        try:
            return consistency.compare_with_tgt(self.database, self.tgtd)
        except processes.CommandError as error:
            # A manager has just started to work: it has received a message.
            return [f"a target was deleted while it was read: {error}"]

    def delete_everything(self) -> None:
        """Delete the rows of all volumes and attachments, and what tgtd has."""
        with session.writer() as connection:
            for table in (models.attachments, models.snapshots, models.volumes):
                connection.execute(sa.delete(table))
        self.tgtd.restart()
        # The first report may have started before the restart, and say that the backend is down.
        for _ in range(2):
            self._wait_for_report()

    def _wait_for_report(self) -> None:
        before = self._reports()

        def all_reported() -> bool:
            now = self._reports()
            return now != before and all(up for _seen_at, up in now)

        wait_until(all_reported, self.logs)

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
            created = self.client.request_json("POST", "/types", body)["volume_type"]
            self._types[name] = created["id"]
        return self._types[name]

    @staticmethod
    def volumes_named(name: str) -> list[dict[str, Any]]:
        """Return the rows of the volumes of a name."""
        statement = sa.select(models.volumes).where(models.volumes.c.name == name)
        with session.reader() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]

    def logs(self) -> str:
        """Return the ends of the logs of all members that run."""
        return "\n".join(
            f"{member.role} {member.pid}:\n{member.output[-8000:]}" for member in self.members
        )
