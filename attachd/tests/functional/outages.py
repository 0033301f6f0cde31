# SPDX-License-Identifier: Apache-2.0
"""A deployment whose database and message queue can be taken away, for tests of outages.

::

    deployment = outages.Deployment(self, "mariadb")
    deployment.start()
    deployment.database_proxy.freeze()
    answer = deployment.ask("GET", "/volumes")
"""

from collections.abc import Iterable
from concurrent import futures
import http.client
import json
from pathlib import Path
import re
from typing import Any, NamedTuple
import unittest
import urllib.parse

from attachd.tests import tcpproxy
from attachd.tests.functional import processes
from attachd.tests.wait import TIMEOUT, wait_until

ATTACH = 30
"""Seconds that the API waits for a manager; long enough for a manager that is only slow."""

HEARTBEAT = 20
"""Seconds that the message queue may be silent; long enough for one that is only slow."""

ANSWER = 15
"""Seconds that the database may be silent; long enough for one that is only slow."""

THREADS = 4
"""How many requests the API works on at the same time."""

_SETTINGS = f"""
[rpc]
attach_timeout = {ATTACH}
max_calls_unresponsive = 8

[database]
connect_timeout = {ANSWER}
read_timeout = {ANSWER}
retry_timeout = {ANSWER}

[manager]
threads_per_backend = {THREADS}

[oslo_messaging_rabbit]
heartbeat_timeout_threshold = {HEARTBEAT}
heartbeat_rate = 4
rabbit_interval_max = 1
"""


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def message(self) -> str:
        """The message of an error, whatever its key; "" where it is none."""
        faults = self.body.values() if isinstance(self.body, dict) else ()
        said = (each["message"] for each in faults if isinstance(each, dict) and "message" in each)
        return next(said, "")


class Deployment(processes.Deployment):
    """One manager and one API, behind proxies from all they depend on.

    :ivar database_proxy: in front of the database
    :ivar queue_proxy: in front of the message queue
    """

    def __init__(
        self,
        test: unittest.TestCase,
        database: str,
        backend: str = "file",
        settings: str = "",
        threads: int = THREADS,
    ) -> None:
        super().__init__(test, database, backend, workers=1)
        file = self.folder / "attachd.conf"
        text = file.read_text(encoding="utf-8")
        queue = re.search(r"^transport_url = (\S+)$", text, re.MULTILINE)
        assert queue is not None
        self.database_proxy, through = tcpproxy.before(test, self.database)
        text = text.replace(self.database, through)
        self.queue_proxy, through = tcpproxy.before(test, queue[1])
        text = text.replace(queue[1], through)
        file.write_text(f"{text}\n{_SETTINGS}\n{settings}", encoding="utf-8")
        self._environment["GUNICORN_CMD_ARGS"] = f"--workers=1 --threads={threads}"

    def start(self) -> None:
        """Start both, and wait until they work."""
        self.begin_manager()
        self.start_gunicorn()
        self.wait_until_served()

    def begin_manager(self) -> processes.Process:
        """Start the manager without waiting for anything."""
        return processes.Process(
            self._test,
            processes.script("attachd-manager"),
            self._argument,
            env=self._environment,
        )

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send one request over a connection of its own; ``path`` begins behind /v3."""
        place = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(place.netloc, timeout=TIMEOUT)
        headers = {"OpenStack-API-Version": "volume 3.71", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, f"/v3{path}", sent, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        read = json.loads(raw) if raw else None
        return Answer(response.status, found, read)

    def ask_all(self, requests: Iterable[tuple[Any, ...]]) -> list[Answer]:
        """Send requests at the same time."""
        wanted = list(requests)
        with futures.ThreadPoolExecutor(len(wanted)) as pool:
            return list(pool.map(lambda request: self.ask(*request), wanted))

    def get(self, path: str) -> Any:
        """Read from the API."""
        answer = self.ask("GET", path.removeprefix("/v3"))
        self._test.assertEqual(200, answer.status, answer)
        return answer.body

    def volume(self, **wanted: Any) -> str:
        """Make a volume and return its id once it is available."""
        answer = self.ask("POST", "/volumes", {"volume": {"size": 1, **wanted}})
        self._test.assertEqual(202, answer.status, answer)
        made = str(answer.body["volume"]["id"])
        wait_until(lambda: self.status(made) == "available")
        return made

    def status(self, volume_id: str) -> str:
        """Return the status of a volume; "" where nobody can tell."""
        answer = self.ask("GET", f"/volumes/{volume_id}")
        return str(answer.body["volume"]["status"]) if answer.status == http.client.OK else ""

    def reserve(self, volume_id: str) -> str:
        """Make an attachment without a connector and return its id."""
        answer = self.ask("POST", "/attachments", reservation(volume_id))
        self._test.assertEqual(200, answer.status, answer)
        return str(answer.body["attachment"]["id"])

    def connect(self, attachment_id: str, host: str = "one") -> Answer:
        """Update an attachment with a connector."""
        return self.ask("PUT", f"/attachments/{attachment_id}", connector(host))

    def cycle(self, volume_id: str) -> None:
        """Attach and detach a volume; each step has to succeed."""
        attachment = self.reserve(volume_id)
        for method, path, body in (
            ("PUT", f"/attachments/{attachment}", connector("one")),
            ("POST", f"/attachments/{attachment}/action", {"os-complete": None}),
            ("DELETE", f"/attachments/{attachment}", None),
        ):
            answer = self.ask(method, path, body)
            self._test.assertIn(answer.status, {200, 204}, answer)

    def threads(self) -> int:
        """Count the threads of the API's worker."""
        assert self.server is not None
        (worker,) = _children(self.server.pid)
        return len(list(Path(f"/proc/{worker}/task").iterdir()))


def reservation(volume_id: str, **more: Any) -> dict[str, Any]:
    """Return the body that makes an attachment."""
    server = "9c1f5e0a-7f43-4a3a-93ae-04a0d9f2c8b5"
    return {"attachment": {"volume_uuid": volume_id, "instance_uuid": server, **more}}


def connector(host: str) -> dict[str, Any]:
    """Return the body that connects one."""
    return {"attachment": {"connector": {"host": host, "initiator": f"iqn.2026-01.test:{host}"}}}


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found
