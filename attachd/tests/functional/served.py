# SPDX-License-Identifier: Apache-2.0
"""The served API, for tests which talk HTTP to it: the real WSGI application, a manager with the
fake driver, the in-process transport and a private SQLite database.

A test case calls ``served.use(self)`` in its setUp(); a gabbi story names the fixture Served.
"""

import dataclasses
import io
import json
import sys
import threading
from typing import Any
import unittest
from unittest import mock
import urllib.parse
import uuid

from gabbi import fixture
import oslo_messaging as messaging

from attachd import service
from attachd.api import app, policy
from attachd.conf import CONF
from attachd.manager.endpoint import Endpoint
from attachd.manager.ha.backend_heartbeat import BackendHeartbeat
from attachd.manager.ha.recovery import RecoveryLoop
from attachd.rpc import transport
from attachd.tests import agents, backends, computes, rows
from attachd.tests.functional import described

LATEST = "volume 3.71"
PROJECT = "a" * 32
MEMBER = f"alice:{PROJECT}:member,reader"
READER = f"rita:{PROJECT}:reader"
ADMIN = f"root:{PROJECT}"
STRANGER = f"mallory:{'b' * 32}:member,reader"


@dataclasses.dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.raw)

    @property
    def fault(self) -> str:
        """The message of an error, whatever its key."""
        (content,) = self.body.values()
        return content["message"]


class Api:
    """The API as a client sees it.

    :ivar backend: the manager's backend, whose driver can be made to fail
    """

    def __init__(self, backend: backends.FakeBackend, application: app.Application) -> None:
        self.backend = backend
        self.application = application

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = MEMBER,
        version: str | None = LATEST,
        raw: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """Send one request.

        :param path: below /v3, percent-encoded, unless it begins with ``//``: then from the root
        :param body: sent in JSON; ``raw`` is sent as it is
        :param headers: ``content_type="text/plain"``, ``accept=...``
        """
        sent = b"" if body is None else json.dumps(body).encode()
        sent = sent if raw is None else raw
        environ = self._environ(method, path[1:] if path.startswith("//") else f"/v3{path}", sent)
        if token:
            environ["HTTP_X_AUTH_TOKEN"] = token
        if version is not None:
            environ["HTTP_OPENSTACK_API_VERSION"] = version
        for name, value in headers.items():
            key = name.upper()
            environ[key if key.startswith("CONTENT_") else f"HTTP_{key}"] = value
        return self.send(environ)

    @staticmethod
    def _environ(method: str, path: str, sent: bytes) -> dict[str, Any]:
        url = urllib.parse.urlsplit(path)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": urllib.parse.unquote_to_bytes(url.path).decode("latin-1"),
            "QUERY_STRING": url.query,
            "SERVER_NAME": "api.example",
            "SERVER_PORT": "8776",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "api.example:8776",
            "HTTP_ACCEPT": "application/json",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(sent),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if sent:
            environ |= {"CONTENT_LENGTH": str(len(sent)), "CONTENT_TYPE": "application/json"}
        return environ

    def send(self, environ: dict[str, Any]) -> Answer:
        """Send one request as a WSGI server would hand it over."""
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            started.append((status, headers))

        raw = b"".join(self.application(environ, start_response))
        ((status, headers),) = started
        return Answer(
            int(status.split()[0]), {name.lower(): value for name, value in headers}, raw
        )


def use(test: unittest.TestCase, kind: str = "sqlite") -> Api:
    """Serve the API, with a database of some kind, until the test is over."""
    CONF([], project="attachd", default_config_files=[])
    backend = backends.use(test, kind)
    _use_transport(test)
    server = transport.get_server(Endpoint(backend), backend.host)
    server.start(override_pool_size=4)
    test.addCleanup(server.wait)
    test.addCleanup(server.stop)
    # It reports once: a slow machine must not take it for dead.
    backends.override(test, "service_down_time", 24 * 3600, "manager")
    # Hosts report once as well; agents.silence() is longer than this.
    backends.override(test, "down_time", 3000, "agent")
    # A slow machine must reach no time-out that is not the subject of a test.
    backends.override(test, "attach_timeout", 300, "rpc")
    backends.override(test, "max_calls_unresponsive", 1000, "rpc")
    backends.override(test, "connect_timeout", 120.0, "nova")
    backends.override(test, "read_timeout", 120.0, "nova")
    BackendHeartbeat(backend).run_once()
    policy.forget()
    test.addCleanup(policy.forget)
    return Api(backend, app.make_app())


def _use_transport(test: unittest.TestCase) -> None:
    messaging.set_transport_defaults(service.EXCHANGE)
    messaging.TransportURL(CONF)
    backends.override(test, "transport_url", f"inprocess://{uuid.uuid4().hex}")
    transport.reset_after_fork()
    test.addCleanup(transport.close)


class Served(fixture.GabbiFixture):
    """Serves the API to one gabbi story."""

    application: app.Application | None = None

    def start_fixture(self) -> None:
        """Begin to serve."""
        self._owner = unittest.TestCase()
        api = use(self._owner)
        self.backend, Served.application = api.backend, api.application

    def stop_fixture(self) -> None:
        """End it, and remove all that was made."""
        Served.application = None
        self._owner.doCleanups()


class ServedBadly(Served):
    """Serves the API, with a backend that makes no volume."""

    def start_fixture(self) -> None:
        """Begin to serve."""
        super().start_fixture()
        backends.override(self._owner, "fake_fail", ["create"], group=backends.NAME)


class ServedWithCare(Served):
    """Serves the API, with somebody who looks after the backend each second."""

    def start_fixture(self) -> None:
        """Begin to serve."""
        super().start_fixture()
        backends.override(self._owner, "report_interval", 1, "manager")
        stop, caretaker = threading.Event(), RecoveryLoop(self.backend)
        caring = threading.Thread(target=caretaker.run, args=(stop,))
        caring.start()
        for each in (caring.join, caretaker.wake, stop.set):
            self._owner.addCleanup(each)


class ServedWithAgents(Served):
    """Serves the API, with hosts: node-1 attaches, others are away, new, or cannot."""

    def start_fixture(self) -> None:
        """Begin to serve."""
        super().start_fixture()
        agents.Agent(self._owner, "node-1")
        busy = agents.Agent(self._owner, "node-busy")
        busy.is_busy = True
        failing = agents.Agent(self._owner, "node-failing")
        failing.is_failing = True
        agents.Agent(self._owner, "node-silent").give_up_soon(self._owner)
        agents.report("node-away")
        agents.silence("node-away")
        agents.report("node-broken", error="iscsid does not run.", connector=None)


class ServedThroughOneTarget(Served):
    """Serves the API, with a backend to which each host has one connection, for all volumes."""

    def start_fixture(self) -> None:
        """Begin to serve."""
        driver = backends.RecordingDriver
        self._patches: list[Any] = [
            mock.patch.object(driver, "SHARED_TARGETS", None),
            mock.patch.object(
                driver, "connection_key", lambda _self, _volume, export: export.connector["host"]
            ),
        ]
        for each in self._patches:
            each.start()
        super().start_fixture()

    def stop_fixture(self) -> None:
        """End it."""
        super().stop_fixture()
        for each in self._patches:
            each.stop()


class ServedBesideCompute(Served):
    """Serves the API, with a Compute whose servers have whatever is attached to them."""

    def start_fixture(self) -> None:
        """Begin to serve."""
        super().start_fixture()
        compute = computes.Compute(self._owner)
        compute.holder = lambda _server, volume: str(rows.attachments(volume)[0]["id"])
        backends.override(self._owner, "endpoint_override", compute.url, group="nova")


def application() -> app.Application:
    """Return what gabbi sends its requests to: the application that is served at the moment.

    Each answer is held against the API's description.
    """

    def current(environ: dict[str, Any], start_response: Any) -> Any:
        assert Served.application is not None
        return described.application(Served.application)(environ, start_response)

    return current
