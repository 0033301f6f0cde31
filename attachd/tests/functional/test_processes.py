# SPDX-License-Identifier: Apache-2.0
"""Tests of a manager and a WSGI server with RabbitMQ, MariaDB and PostgreSQL."""

from collections import Counter
import contextlib
from pathlib import Path
import signal
import subprocess
import sys
import threading
import unittest

import requests
import sqlalchemy as sa

from attachd.tests.fixtures import http_client, processes, sdk
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

HEADERS = {"OpenStack-API-Version": "volume 3.71"}

_REQUESTS = (
    ("GET", "/volumes/detail", None),
    ("POST", "/types", {"volume_type": {"name": ""}}),
    ("DELETE", "/volumes/00000000-0000-0000-0000-000000000000", None),
    # Refused before its body is read.
    ("POST", "/nowhere", {"long": "x" * 2000}),
)


class CycleCase:
    """The whole attach cycle; a subclass sets database and server."""

    def test_data_survives_detach_for_the_next_host(self):
        deployment = Deployment(self, self.database)
        manager = deployment.start_manager()
        server = self.start(deployment)
        deployment.wait_until_served()
        storage = sdk.block_storage(self, deployment.url)
        volume = storage.create_volume(name="disk", size=1)
        volume = storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        self.assertEqual("test@file#file", volume.host)
        for host, expected in (("one", b"\0" * 5), ("two", b"bytes")):
            attachment = storage.create_attachment(volume.id, connector={})
            attachment = storage.update_attachment(attachment, connector={"host": host})
            device = Path(attachment.connection_info["device_path"])
            with device.open("r+b") as disk:
                self.assertEqual(expected, disk.read(5))
                disk.seek(0)
                disk.write(b"bytes")
            storage.complete_attachment(attachment)
            self.assertEqual("in-use", storage.get_volume(volume.id).status)
            storage.delete_attachment(attachment)
            self.assertFalse(device.exists())
            self.assertEqual("available", storage.get_volume(volume.id).status)
        storage.delete_volume(volume)
        storage.wait_for_delete(volume, interval=0.1, wait=TIMEOUT)
        self.assertEqual((0, 0), (server.end(), manager.end()))
        for process in (server, manager):
            self.assertNotIn("Traceback", process.output)


@full_only("deployments")
class MariaDBUnderUwsgiTest(CycleCase, unittest.TestCase):
    database = "mariadb"

    def start(self, deployment):
        return deployment.start_uwsgi()


class PostgreSQLUnderUwsgiTest(CycleCase, unittest.TestCase):
    database = "postgresql"

    def start(self, deployment):
        return deployment.start_uwsgi()


@full_only("deployments")
class MariaDBUnderGunicornTest(CycleCase, unittest.TestCase):
    database = "mariadb"

    def start(self, deployment):
        return deployment.start_gunicorn()


class ServerCase:
    """What a WSGI server with the configuration in etc/ does; a subclass starts it."""

    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, "sqlite", backend="slow", workers=1)

    def start_all(self):
        self.deployment.start_manager()
        server = self.start(self.deployment)
        self.deployment.wait_until_served()
        return server

    def request(self, session, method, path, body=None, data=None):
        url = f"{self.deployment.url}/v3{path}"
        return session.request(method, url, json=body, data=data, headers=HEADERS, timeout=TIMEOUT)

    def test_pooled_connections_are_never_cut_off(self):
        self.start(self.deployment)
        seen = Counter()

        def work():
            with requests.Session() as session:
                for _ in range(60):
                    for sent in _REQUESTS:
                        seen[self.outcome(session, *sent)] += 1

        clients = [threading.Thread(target=work) for _ in range(6)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(4 * TIMEOUT)
        self.assertEqual({200: 360, 400: 360, 404: 720}, dict(seen))

    def outcome(self, session, method, path, body):
        try:
            return self.request(session, method, path, body).status_code
        except requests.RequestException as error:
            return repr(error)

    def test_large_body_is_refused_with_message(self):
        self.start(self.deployment)
        with requests.Session() as session:
            answer = self.request(session, "POST", "/volumes", data=b"x" * 10_000_000)
            self.assertIn(answer.status_code, {400, 413})
            self.assertIn("message", answer.text)
            self.assertEqual(200, self.request(session, "GET", "/volumes").status_code)

    def test_idle_connections_do_not_block_others(self):
        self.start(self.deployment)
        sessions = [requests.Session() for _ in range(80)]
        for session in sessions:
            self.addCleanup(session.close)
            self.assertEqual(200, self.request(session, "GET", "/volumes").status_code)
        self.assertEqual(200, self.request(requests.Session(), "GET", "/volumes").status_code)

    def test_api_shutdown_answers_request_in_progress(self):
        server = self.start_all()
        storage = sdk.block_storage(self, self.deployment.url)
        volume = storage.create_volume(size=1)
        storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        answers = []

        def attach():
            body = {"attachment": {"volume_uuid": volume.id, "connector": {"host": "here"}}}
            answers.append(self.request(requests.Session(), "POST", "/attachments", body))

        client = threading.Thread(target=attach)
        client.start()
        self.deployment.api.wait_until_attaching()
        code = server.end()
        client.join(TIMEOUT)
        self.assertEqual([200], [answer.status_code for answer in answers])
        self.assertEqual(0, code)

    def test_api_with_unreadable_configuration_exits(self):
        (self.deployment.folder / "attachd.conf").write_text("[api]\nmax_limit = many\n")
        with contextlib.suppress(AssertionError, requests.RequestException):
            self.start(self.deployment)
        self.assertNotEqual(0, self.deployment.server.wait())
        self.assertIn("max_limit", self.deployment.server.output)


@full_only("outages")
class UwsgiTest(ServerCase, unittest.TestCase):
    def start(self, deployment):
        return deployment.start_uwsgi()


@full_only("outages")
class GunicornTest(ServerCase, unittest.TestCase):
    def start(self, deployment):
        return deployment.start_gunicorn()


@full_only("outages")
class ManagerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, "mariadb", backend="slow")

    def test_manager_shutdown_answers_call_in_progress(self):
        manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        volume = self.deployment.api.create_volume()
        answers = []

        def attach():
            body = {"attachment": {"volume_uuid": volume, "connector": {"host": "here"}}}
            answers.append(self.deployment.api.request("POST", "/attachments", body))

        client = threading.Thread(target=attach)
        client.start()
        self.deployment.api.wait_until_attaching()
        self.assertEqual(0, manager.end())
        client.join(TIMEOUT)
        self.assertEqual([200], [answer.status for answer in answers])

    def test_manager_after_kill_finishes_the_work_left(self):
        configuration = self.deployment.folder / "attachd.conf"
        text = configuration.read_text()
        manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.assertEqual(0, manager.end())
        configuration.write_text(text.replace("fake_delay = 2", "fake_delay = 900"))
        manager = self.deployment.start_manager()
        answer = self.deployment.api.request("POST", "/volumes", {"volume": {"size": 1}})
        self.assertEqual(202, answer.status, answer)
        volume = answer.body["volume"]["id"]
        engine = sa.create_engine(self.deployment.database, isolation_level="AUTOCOMMIT")
        self.addCleanup(engine.dispose)
        leased = "SELECT id FROM volumes WHERE lease_holder IS NOT NULL"
        with engine.connect() as connection:
            wait_until(lambda: connection.exec_driver_sql(leased).all())
        manager.kill()
        self.assertEqual("creating", self.deployment.api.status(volume))
        configuration.write_text(text)
        self.deployment.start_manager()
        self.deployment.api.wait_for(volume, "available")

    def test_manager_worker_that_died_is_replaced(self):
        manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        workers = set(processes.child_pids(manager.pid))
        self.assertEqual(2, len(workers))
        subprocess.run(["kill", "-KILL", *map(str, workers)], check=True)
        wait_until(
            lambda: len({*processes.child_pids(manager.pid)} - workers) >= 2,
            lambda: manager.output,
        )
        self.deployment.api.create_volume()

    def test_manager_on_sighup_restarts_workers(self):
        manager = self.deployment.start_manager()
        before = set(processes.child_pids(manager.pid))
        manager.send(signal.SIGHUP)
        manager.wait_for("(?s)" + ".*".join(["Serving backend"] * 4))
        self.assertFalse(before & set(processes.child_pids(manager.pid)))
        self.assertEqual(0, manager.end())

    def test_manager_stops_during_message_queue_outage(self):
        configuration = self.deployment.folder / "attachd.conf"
        text = configuration.read_text().replace("@127.0.0.1:5672/", "@127.0.0.1:1/")
        configuration.write_text(text)
        manager = processes.Process(
            self, processes.script("attachd-manager"), f"--config-file={configuration}"
        )
        manager.wait_for("Connection refused")
        self.assertEqual(0, manager.end())

    def test_request_during_message_queue_outage_fails_with_message(self):
        self.deployment.start_manager()
        configuration = self.deployment.folder / "attachd.conf"
        text = configuration.read_text().replace("@127.0.0.1:5672/", "@127.0.0.1:1/")
        configuration.write_text(text)
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        answer = self.deployment.api.request("POST", "/volumes", {"volume": {"size": 1}})
        self.assertEqual(503, answer.status, answer)

    def test_command_errors_are_one_line(self):
        for text, expected in (
            ("[DEFAULT]\nenabled_backends =\n", "enabled_backends"),
            ("[DEFAULT]\nenabled_backends = one\n", "one"),
            ("[DEFAULT]\nenabled_backends = one\n[one]\ndriver = tape\n", "tape"),
            ("[manager]\nworkers = none\n", "workers"),
        ):
            configuration = self.deployment.folder / "wrong.conf"
            state_path = f"[DEFAULT]\nstate_path={self.deployment.folder}\n"
            configuration.write_text(text.replace("[DEFAULT]\n", state_path))
            manager = processes.Process(
                self, processes.script("attachd-manager"), f"--config-file={configuration}"
            )
            self.assertEqual(1, manager.wait(), text)
            last = manager.output.splitlines()[-1]
            self.assertTrue(last.startswith("attachd-manager: "), manager.output)
            self.assertIn(expected, last)
            self.assertNotIn("Traceback", manager.output)


_MANAGER_WITH_WRONG_CLOCK = """
import datetime, sys
from oslo_utils import timeutils
from attachd.cmd import manager
right, shift = timeutils.utcnow, datetime.timedelta(hours=int(sys.argv.pop(1)))
timeutils.utcnow = lambda *arguments, **more: right(*arguments, **more) + shift
sys.exit(manager.main())
"""


@full_only("deployments")
class WrongClockTest(unittest.TestCase):
    """The manager's clock differs from those of the API and of the database by an hour."""

    def test_manager_with_wrong_clock_is_up_and_expires_reservations_in_time(self):
        for hours in (-1, 1):
            with self.subTest(hours=hours):
                deployment = Deployment(self, "mariadb", workers=1)
                deployment.configure("[manager]\nservice_down_time = 600\n")
                manager = processes.Process(
                    self,
                    sys.executable,
                    "-c",
                    _MANAGER_WITH_WRONG_CLOCK,
                    f"{hours}",
                    deployment.config_argument,
                    env=deployment.environment,
                )
                deployment.start_gunicorn()
                deployment.wait_until_served()
                self.api = http_client.Client(deployment.api.url, "volume 3.71, attachd 1.0")
                late, early = (self.reserve(seconds) for seconds in (3000, 1))
                wait_until(lambda item=early: self.get(item).status == 404)
                self.assertEqual(200, self.get(late).status)
                manager.end()

    def reserve(self, seconds):
        made = self.api.request_json("POST", "/volumes", {"volume": {"size": 1}})["volume"]["id"]
        path = f"/volumes/{made}"
        wait_until(lambda: self.api.request_json("GET", path)["volume"]["status"] == "available")
        body = {"attachment": {"volume_uuid": made, "expires_in": seconds}}
        return self.api.request_json("POST", "/attachments", body)["attachment"]["id"]

    def get(self, attachment):
        return self.api.request("GET", f"/attachments/{attachment}")
