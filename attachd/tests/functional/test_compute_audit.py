# SPDX-License-Identifier: Apache-2.0
"""Tests of an audit's comparison with Compute, with a real Keystone and a fake Nova."""

import datetime
import unittest
from unittest import mock

from attachd import compute as compute_api
from attachd.db import models
from attachd.manager.audit import compute
from attachd.manager.audit.rules import REPAIRED, Kind
from attachd.tests.fixtures import conf_fixture, db_rows, fake_nova, keystone_api
from attachd.tests.selection import full_only

SERVER, OTHER = (f"{number}1111111-2222-3333-4444-555555555555" for number in "12")
LONG_AGO = models.now() - datetime.timedelta(days=1)


@full_only("keystone")
class ComputeAuditTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(compute, "_INTERVAL", 0.0))
        self.api = keystone_api.use(self)
        self.keystone = self.api.keystone
        self.compute = fake_nova.FakeNova(self)
        self.compute.accepts_token = self.keystone.is_valid
        self.keystone.endpoint("compute", self.compute.url)
        self.addCleanup(self.keystone.forget_endpoint, "compute")
        conf_fixture.override(self, "auth_section", "keystone_authtoken", "nova")

    def attach(self, server):
        """Attach a volume to a server as Nova does, long ago."""
        nova = self.keystone.token(self.keystone.user("nova", "service", project="service"))
        alice = self.keystone.user("alice", "member")
        volume = db_rows.add_volume(project_id=alice.project_id)["id"]
        body = {"attachment": {
            "volume_uuid": volume, "instance_uuid": server, "connector": db_rows.CONNECTOR,
        }}  # fmt: skip
        answer = self.api.request(
            "POST", "/attachments", body, token=self.keystone.token(alice), x_service_token=nova
        )
        self.assertEqual(200, answer.status, answer.raw)
        attachment = answer.body["attachment"]["id"]
        db_rows.change_attachment(attachment, state="attached", updated_at=LONG_AGO)
        self.compute.add_attachment(server, volume, attachment)
        return attachment

    def audit(self, *repaired):
        reader = compute_api.ComputeReader(compute_api.load_credentials())
        return compute.compare(reader, repaired, is_thorough=True)

    def test_audit_deletes_attachment_of_server_that_compute_deleted(self):
        kept, lost = self.attach(SERVER), self.attach(OTHER)
        self.assertEqual(([], []), (self.audit().differences, self.audit().not_compared))
        self.compute.remove_server(OTHER)
        (difference,) = self.audit(self.api.backend).differences
        self.assertEqual((Kind.SERVER_GONE, REPAIRED), (difference.kind, difference.outcome))
        self.assertIn(lost, difference.found)
        self.assertEqual([kept], [row["id"] for row in db_rows.list_attachments()])
        self.assertEqual({kept}, self.api.backend.driver.granted())

    def test_audit_with_wrong_credentials_is_not_compared(self):
        lost = self.attach(SERVER)
        self.compute.remove_server(SERVER)
        conf_fixture.override(self, "password", "wrong", "keystone_authtoken")
        result = self.audit(self.api.backend)
        self.assertEqual([], result.differences)
        self.assertRegex(result.not_compared[0], "Compute cannot be asked: .*401")
        self.assertEqual("attached", db_rows.get_attachment(lost)["state"])

    def test_audit_without_compute_in_catalogue_is_not_compared(self):
        self.keystone.forget_endpoint("compute")
        (reason,) = self.audit().not_compared
        self.assertRegex(reason, "Compute cannot be asked: .*endpoint")
