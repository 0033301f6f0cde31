# SPDX-License-Identifier: Apache-2.0
"""Tests of the limit of attachments per host: [manager]max_attachments_per_host.

Limits of volume types are tested in gabbits/multiattach-limits.yaml.
"""

import functools

from attachd.tests import concurrency
from attachd.tests.fixtures import conf_fixture, db_rows
from attachd.tests.functional.api_case import ApiCase

LIMIT = 2
OTHER_PROJECT = "b" * 32
SAYS = (
    r"Host node-1 has 2 attachments, and may have 2 \(\[manager\]max_attachments_per_host\)\. "
    "Delete one of them first."
)


class HostTest(ApiCase):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "max_attachments_per_host", LIMIT, group="manager")

    def attach(self, host="node-1", volume=None):
        volume = volume or db_rows.add_volume()["id"]
        wanted = {"volume_uuid": volume, "connector": {"host": host}}
        return self.api.request("POST", "/attachments", {"attachment": wanted})

    def attached(self, host="node-1", volume=None):
        answer = self.attach(host, volume)
        self.assertEqual(200, answer.status, answer.raw)
        return answer.body["attachment"]["id"]

    def initialize(self, volume):
        body = {"os-initialize_connection": {"connector": {"host": "node-1"}}}
        return self.api.request("POST", f"/volumes/{volume}/action", body)

    def assert_refused(self, answer):
        self.assertEqual(400, answer.status, answer.raw)
        self.assertRegex(answer.fault, SAYS)

    def test_host_limit_exceeded_is_refused_and_leaves_nothing(self):
        first = self.attached()
        self.attached()
        volume = db_rows.add_volume()["id"]
        self.assert_refused(self.attach(volume=volume))
        self.assertEqual([], db_rows.list_attachments(volume))
        self.assertEqual("available", db_rows.get_volume(volume)["status"])
        self.attached("node-2", volume)
        self.assertEqual(200, self.api.request("DELETE", f"/attachments/{first}").status)
        self.attached()

    def test_host_limit_exceeded_keeps_the_reservation(self):
        for _ in range(LIMIT):
            self.attached()
        volume = db_rows.add_volume()["id"]
        wanted = {"attachment": {"volume_uuid": volume}}
        answer = self.api.request("POST", "/attachments", wanted)
        self.assertEqual(200, answer.status)
        path = f"/attachments/{answer.body['attachment']['id']}"
        connect = {"attachment": {"connector": {"host": "node-1"}}}
        self.assert_refused(self.api.request("PUT", path, connect))
        self.assertEqual("reserved", self.api.request("GET", path).body["attachment"]["status"])
        connect["attachment"]["connector"]["host"] = "node-2"
        self.assertEqual(200, self.api.request("PUT", path, connect).status)

    def test_host_limit_reached_allows_repeated_connect(self):
        attachments = [self.attached() for _ in range(LIMIT)]
        connect = {"attachment": {"connector": {"host": "node-1"}}}
        for attachment in attachments:
            self.assertEqual(
                200, self.api.request("PUT", f"/attachments/{attachment}", connect).status
            )

    def test_host_limit_counts_each_attachment_of_a_volume(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        for _ in range(LIMIT):
            self.attached(volume=volume)
        self.assert_refused(self.attach(volume=volume))
        self.attached("node-2", volume)

    def add_of_other_project(self, **columns):
        """Store an attachment at the host for another project."""
        volume = db_rows.add_volume(project_id=OTHER_PROJECT)["id"]
        db_rows.add_attachment(
            volume, "attached", host="node-1", project_id=OTHER_PROJECT, **columns
        )

    def test_host_limit_ignores_users_of_other_projects(self):
        for _ in range(LIMIT):
            self.add_of_other_project()
        for _ in range(LIMIT):
            self.attached()
        self.assert_refused(self.attach())

    def test_host_limit_counts_services_in_all_projects(self):
        for _ in range(LIMIT):
            self.add_of_other_project(by_service=True)
        self.assert_refused(self.attach())

    def test_host_limit_counts_legacy_calls(self):
        for _ in range(LIMIT):
            volume = db_rows.add_volume()["id"]
            self.assertEqual(200, self.initialize(volume).status)
        self.assertEqual(200, self.initialize(volume).status)
        self.assert_refused(self.initialize(db_rows.add_volume()["id"]))
        self.assert_refused(self.attach())

    def test_host_limit_is_kept_by_connects_at_once(self):
        for _ in range(5):
            db_rows.remove_all()
            calls = [functools.partial(self.attach, volume=db_rows.add_volume()["id"])
                     for _ in range(8)]  # fmt: skip
            answers = concurrency.run_at_once(*calls)
            statuses = sorted(answer.status for answer in answers)
            self.assertEqual([200] * LIMIT + [400] * (8 - LIMIT), statuses)
            for answer in answers:
                if answer.status == 400:
                    self.assert_refused(answer)
