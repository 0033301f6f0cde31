# SPDX-License-Identifier: Apache-2.0
"""The deployment of a soak: MariaDB, RabbitMQ, tgtd, two managers, uWSGI and a lossy proxy.

All processes must be started by one thread that lives as long as the run: a process ends with the
thread that started it.
"""

from collections import Counter
from collections.abc import Callable
import contextlib
import functools
import os
from pathlib import Path
import random
import re
import signal
import subprocess
from typing import NamedTuple
import unittest

import requests
import sqlalchemy as sa

from attachd.db import models
from attachd.tests.fixtures import (
    deployments,
    http_client,
    lifetime,
    processes,
    requirements,
    tcp_proxy,
    tgtd,
)
from attachd.tests.soak import images, servers
from attachd.tests.wait import TIMEOUT, wait_until

KINDS = ("api", "manager", "manager worker", "tgtd", "broker", "database")
"""What can be killed."""

SHARED_TYPE = "shared"

MANAGERS = 2

_SAID_WITH_TRACEBACK = re.compile(
    r"^\S+ \S+ \d+ [A-Z]+ (\S+ \[.{1,200}).*\n(?:\S+ \S+ \d+ [A-Z]+ \S+ )?Traceback ", re.MULTILINE
)
_VARYING = re.compile(r"(?:req-)?[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")

_SETTINGS = """
[rpc]
attach_timeout = {attach_timeout}
"""


class Restart(NamedTuple):
    """The restart of a killed process.

    :ivar start: starts it, without waiting
    :ivar is_ready: returns whether it is up
    """

    start: Callable[[], None]
    is_ready: Callable[[], bool]


def _nothing() -> None:
    pass


def _at_once() -> bool:
    return True


def _has_none(caller: http_client.Client, kind: str) -> bool:
    return not caller.request_json("GET", f"/{kind}")[kind]


class SoakDeployment:
    """A whole deployment, with volumes.

    :ivar url: of the API behind the proxy, with /v3
    :ivar database: its URL
    :ivar proxy: between clients and API
    :ivar ordinary: ids of ordinary volumes
    :ivar shared: ids of volumes that several may attach
    :ivar copied: ids of volumes that one copies who alone attaches them
    """

    def __init__(self, test: unittest.TestCase, seed: int, attach_timeout: int) -> None:
        self._test = test
        self.seed = seed
        self.images = images.Images(test, seed)
        self._folder = lifetime.temp_dir(test)
        self._database = servers.MariaDb(test)
        self._broker = servers.RabbitMq(test)
        self.database = self._database.url
        self.tgtd = tgtd.start(test)
        self._configure(attach_timeout)
        self._managers: list[processes.Process | None] = [None] * MANAGERS
        self._api: processes.Process | None = None
        self._port = processes.free_port()
        self.proxy = tcp_proxy.Proxy(test, "127.0.0.1", self._port, seed)
        self.url = f"http://127.0.0.1:{self.proxy.port}/v3"
        self._logs: list[processes.Process] = []
        self._start_everything()
        self.ordinary: list[str] = []
        self.shared: list[str] = []
        self.copied: list[str] = []

    @property
    def volumes(self) -> list[str]:
        """The ids of all volumes that clients attach."""
        return [*self.ordinary, *self.shared, *self.copied]

    def file_of(self, volume: str) -> Path:
        """Return the file of a volume."""
        return Path(self.tgtd.options["tgt_volumes_dir"]) / volume

    def error_of(self, kind: str, resource_id: str) -> str:
        """Return why a volume or a snapshot is in error; "": it is not."""
        table = models.snapshots if kind == "snapshot" else models.volumes
        statement = sa.select(table.c.error).where(table.c.id == resource_id)
        engine = sa.create_engine(self.database, poolclass=sa.NullPool)
        with engine.connect() as connection:
            return connection.execute(statement).scalar() or ""

    def _configure(self, attach_timeout: int) -> None:
        path = deployments.write_configuration(
            self._folder,
            _SETTINGS.format(attach_timeout=attach_timeout),
            self.images.settings,
            self.tgtd.configuration,
            broker=self._broker.url,
            database=self.database,
            backend="tgt",
            host="soak",
        )
        self._argument = f"--config-file={path}"
        self._environment = processes.environment(
            ATTACHD_CONFIG_FILES=f"{path}", HOME=f"{self._folder}"
        )

    def _start_everything(self) -> None:
        subprocess.run(
            [processes.script("attachd-manage"), self._argument, "db", "sync"],
            env=self._environment,
            check=True,
            capture_output=True,
            timeout=TIMEOUT,
        )
        for number in range(MANAGERS):
            self._start_manager(number)
        self._start_api()
        self.wait_until_served()

    def make_volumes(self, ordinary: int, shared: int, copied: int) -> None:
        """Make volumes of each kind."""
        caller = http_client.Client(self.url)
        specs = {"multiattach": "<is> True"}
        wanted = {"name": SHARED_TYPE, "extra_specs": specs}
        caller.request_json("POST", "/types", {"volume_type": wanted})
        self.ordinary = [caller.create_volume() for _ in range(ordinary)]
        self.shared = [caller.create_volume(volume_type=SHARED_TYPE) for _ in range(shared)]
        self.copied = [caller.create_volume() for _ in range(copied)]

    def remove_volumes(self) -> None:
        """Delete all snapshots and volumes, which have no attachments any more."""
        caller = http_client.Client(self.url)
        for kind in ("snapshots", "volumes"):
            for item in caller.request_json("GET", f"/{kind}")[kind]:
                caller.request_json("DELETE", f"/{kind}/{item['id']}")
            wait_until(functools.partial(_has_none, caller, kind), f"{kind} are left")

    def kill(self, kind: str, chance: random.Random) -> "Restart":
        """Send SIGKILL to a process.

        :param kind: one of KINDS
        :param chance: chooses, where there are several
        """
        number = chance.randrange(MANAGERS)
        if self._managers[number] is None:
            number = (number + 1) % MANAGERS
        methods: dict[str, tuple[Callable[[], None], Restart]] = {
            "api": (self._kill_api, Restart(self._start_api, self._api_is_ready)),
            "manager": (
                lambda: self._kill_manager(number),
                Restart(
                    lambda: self._start_manager(number), lambda: self._manager_is_ready(number)
                ),
            ),
            # Its parent starts another one.
            "manager worker": (lambda: self._kill_worker(number), Restart(_nothing, _at_once)),
            "tgtd": (self.tgtd.stop, Restart(self.tgtd.restart, _at_once)),
            "broker": (
                self._broker.kill,
                Restart(self._broker.start, self._broker.is_ready),
            ),
            "database": (
                self._database.kill,
                Restart(self._database.start, self._database.is_ready),
            ),
        }
        kill, revival = methods[kind]
        kill()
        return revival

    def _api_is_ready(self) -> bool:
        return self._api is not None and "WSGI app 0" in self._api.output

    def _manager_is_ready(self, number: int) -> bool:
        process = self._managers[number]
        return process is not None and "Serving backend" in process.output

    def _start_manager(self, number: int) -> None:
        self._managers[number] = self._run(processes.script("attachd-manager"), self._argument)

    def _kill_manager(self, number: int) -> None:
        process, self._managers[number] = self._managers[number], None
        if process is not None:
            process.kill()

    def _kill_worker(self, number: int) -> None:
        process = self._managers[number]
        for child in processes.child_pids(process.pid) if process else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _start_api(self) -> None:
        self._api = self._run(
            processes.script("uwsgi"),
            f"--ini={processes.ROOT / 'etc/attachd/uwsgi.ini'}",
            f"--http-socket=127.0.0.1:{self._port}",
            "--no-orphans",
        )

    def _kill_api(self) -> None:
        process, self._api = self._api, None
        if process is not None:
            process.kill()

    def _run(self, *command: str) -> processes.Process:
        process = processes.Process(
            self._test, *servers.bound(self._test), *command, env=self._environment
        )
        self._logs.append(process)
        return process

    def wait_until_served(self) -> None:
        """Wait until the API answers and knows of a manager that is up."""
        wait_until(self._is_served, lambda: "nothing is served:\n" + self.last_words())

    def _is_served(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{self.url}/os-services", timeout=30)
            return answer.ok and "up" in [
                service["state"] for service in answer.json()["services"]
            ]
        return False

    def accidents(self) -> Counter[str]:
        """Count the messages with a traceback in the logs of API and managers, ids left out."""
        return Counter(
            _VARYING.sub("*", said)
            for process in self._logs
            for said in _SAID_WITH_TRACEBACK.findall(process.output)
        )

    def last_words(self, length: int = 4000) -> str:
        """Return the end of the logs of the running API and managers."""
        alive = [log for log in self._logs if log.running]
        return "\n".join(f"--- {item.pid}\n{item.output[-length:]}" for item in alive)

    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of API, managers, broker and database."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.log"):
            old.unlink()
        for number, process in enumerate(self._logs):
            (folder / f"{number:03}-{process.pid}.log").write_text(process.output)
        (folder / "broker.log").write_text(self._broker.output)
        (folder / "database.log").write_text(self._database.output)


def require(test: unittest.TestCase) -> None:
    """Skip the test if a requirement is missing."""
    requirements.require_root(test)
    for name in (
        "mariadbd",
        "mariadb-install-db",
        "rabbitmq-server",
        "epmd",
        "tgtd",
        "qemu-io",
        "qemu-img",
    ):
        requirements.require_tool(test, name)
