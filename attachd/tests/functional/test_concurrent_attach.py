# SPDX-License-Identifier: Apache-2.0
"""Tests of many requests for one volume at the same moment, over HTTP, on each database."""

from collections import Counter
import unittest

import testtools

from attachd.tests.fixtures import deployments, http_client, lifetime
from attachd.tests.fixtures.http_client import Request
from attachd.tests.selection import full_only

CREATES = 200
DELETES = 50
PAIRS = 16
MOST = 5

CONNECTORS = [{"host": name, "ip": "127.0.0.1"} for name in ("host-a", "host-b")]


@full_only("races")
class OnSqliteTest(testtools.TestCase):
    """Everything in one process, with plain files for volumes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        owner = unittest.TestCase()
        cls.addClassCleanup(owner.doCleanups)
        cls.processes = []
        cls.api = http_client.Client(f"{cls.start(owner)}/v3")

    def setUp(self):
        super().setUp()
        for process in self.processes:
            process.show_in_failures(self)

    @classmethod
    def start(cls, owner):
        """Start it for all tests of the class, and return its URL."""
        state = lifetime.temp_dir(owner)
        own = state / "own.conf"
        own.write_text(deployments.NO_LOOP_DEVICES)
        served = deployments.AllInOne(owner, state, f"--config-file={own}")
        cls.processes.append(served)
        cls.exports_folder = state / "exports"
        return served.url

    def exports(self):
        """List what is exported."""
        return [path.name for path in self.exports_folder.glob("*/*")]

    def reserve(self, volume):
        body = {"attachment": {"volume_uuid": volume}}
        return self.api.request_json("POST", "/attachments", body)["attachment"]["id"]

    def attachments(self, volume):
        return self.api.request_json("GET", f"/attachments?volume_id={volume}")["attachments"]

    def tearDown(self):
        super().tearDown()
        accidents = [process.pid for process in self.processes if "Traceback" in process.output]
        self.assertEqual([], accidents)

    def test_create_attachment_200_at_once_succeeds_once_and_returns_400_to_others(self):
        volume = self.api.create_volume()
        body = {"attachment": {"volume_uuid": volume}}
        answers = self.api.request_at_once([Request("POST", "/attachments", body)] * CREATES)
        self.assertEqual({200: 1, 400: CREATES - 1}, Counter(answer.status for answer in answers))
        (won,) = [answer.body["attachment"] for answer in answers if answer.status == 200]
        for answer in answers:
            if answer.status == 400:
                self.assertIn(f"{volume} status must be available", answer.message)
                self.assertIn(won["id"], answer.message)

        self.assertEqual("reserved", self.api.volume(volume)["status"])
        (left,) = self.attachments(volume)
        self.assertEqual((won["id"], "reserved"), (left["id"], left["status"]))

    def test_create_attachment_40_at_once_with_limit_5_succeeds_5_times(self):
        specs = {"multiattach": "<is> True", "max_attachments": f"{MOST}"}
        self.api.request_json(
            "POST", "/types", {"volume_type": {"name": "few", "extra_specs": specs}}
        )
        volume = self.api.create_volume(volume_type="few")
        body = {"attachment": {"volume_uuid": volume}}
        answers = self.api.request_at_once([Request("POST", "/attachments", body)] * 40)
        outcomes = Counter(answer.status for answer in answers)
        self.assertEqual({200: MOST, 400: 40 - MOST}, outcomes)
        for answer in answers:
            if answer.status == 400:
                said = f"{volume} has {MOST} attachments, and may have {MOST} (max_attachments"
                self.assertIn(said, answer.message)
        self.assertEqual(MOST, len(self.attachments(volume)))

    def test_delete_connected_attachment_50_at_once_succeeds_once(self):
        volume = self.api.create_volume()
        creates = [
            Request(
                "POST", "/attachments", {"attachment": {"volume_uuid": volume, "connector": host}}
            )
            for host in CONNECTORS * 5
        ]
        answers = self.api.request_at_once(creates)
        self.assertEqual({200: 1, 400: 9}, Counter(answer.status for answer in answers))
        (won,) = [answer.body["attachment"] for answer in answers if answer.status == 200]
        self.assertEqual([won["id"]], self.exports())

        deletes = [Request("DELETE", f"/attachments/{won['id']}")] * DELETES
        outcomes = Counter(item.status for item in self.api.request_at_once(deletes))
        self.assertEqual({200: 1, 404: DELETES - 1}, outcomes)
        self.assert_free(volume)

    def test_delete_reservation_50_at_once_succeeds_once(self):
        volume = self.api.create_volume()
        deletes = [Request("DELETE", f"/attachments/{self.reserve(volume)}")] * DELETES
        outcomes = Counter(item.status for item in self.api.request_at_once(deletes))
        self.assertEqual({200: 1, 404: DELETES - 1}, outcomes)
        self.assert_free(volume)

    def test_update_attachment_beside_delete_leaves_no_export(self):
        volumes = [self.api.create_volume() for _ in range(PAIRS)]
        paths = [f"/attachments/{self.reserve(volume)}" for volume in volumes]
        requests = []
        for number, path in enumerate(paths):
            updates = [Request("PUT", path, {"attachment": {"connector": CONNECTORS[0]}})]
            if number % 2:
                # Two hosts that want the same attachment: one of them may get it.
                updates.append(Request("PUT", path, {"attachment": {"connector": CONNECTORS[1]}}))
            requests += [*updates, Request("DELETE", path)]
        answers = self.api.request_at_once(requests)
        for request, answer in zip(requests, answers, strict=True):
            allowed = {200} if request.method == "DELETE" else {200, 404, 409}
            self.assertIn(answer.status, allowed, answer)
        for volume in volumes:
            self.assert_free(volume)

    def assert_free(self, volume):
        self.assertEqual([], self.attachments(volume))
        self.assertEqual([], self.exports())
        self.assertEqual("available", self.api.volume(volume)["status"])
        self.reserve(volume)


class OnMariadbTest(OnSqliteTest):
    """The API under uWSGI, a manager, RabbitMQ."""

    kind = "mariadb"

    @classmethod
    def start(cls, owner):
        """Start it for all tests of the class, and return its URL."""
        deployment = deployments.Deployment(owner, cls.kind)
        cls.processes += [deployment.start_manager(), deployment.start_uwsgi()]
        deployment.wait_until_served()
        cls.exports_folder = deployment.folder / "state" / "files" / "exports"
        return deployment.url


class OnPostgresqlTest(OnMariadbTest):
    """The same, with PostgreSQL."""

    kind = "postgresql"
