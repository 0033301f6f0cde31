# SPDX-License-Identifier: Apache-2.0
"""Tests of deleting attachments by force, with a manager whose backend is fake."""

from unittest import mock

from attachd import exception
from attachd.api import detach_guard
from attachd.manager import detach
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, db_rows, fake_nova, wsgi_api
from attachd.tests.functional.api_case import ApiCase

SERVER = "11111111-2222-4333-8444-555555555555"
OTHER_SERVER = "22222222-2222-4333-8444-555555555555"
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
ATTACHD_1_0 = f"{wsgi_api.LATEST}, attachd 1.0"


class Case(ApiCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]

    def attach(self, server=SERVER, **more):
        return self.create_attachment(self.volume, instance_uuid=server, **more)

    def connect(self, identity, status=200):
        body = {"attachment": {"connector": CONNECTOR}}
        self.expect(status, "PUT", f"/attachments/{identity}", body)

    def complete(self, identity):
        self.api.request("POST", f"/attachments/{identity}/action", {"os-complete": None})

    def force(self, identity, query="force=true", status=200):
        path = f"/attachments/{identity}?{query}"
        return self.expect(status, "DELETE", path, token=wsgi_api.ADMIN, version=ATTACHD_1_0)

    def messages(self):
        """Return what the volume's owner reads, the newest first."""
        return [
            message["user_message"]
            for message in self.api.request("GET", "/messages").body["messages"]
        ]

    def assert_one_message(self, identity):
        said = f"delete attachment:User root had attachment {identity} deleted by force."
        self.assertEqual([said], self.messages())


class ForceTest(Case):
    def test_force_delete_from_each_state_removes_one_attachment_only(self):
        other = self.attach(OTHER_SERVER, connector=CONNECTOR)
        for state in set(AttachmentState) - {AttachmentState.HELD}:
            with self.subTest(state):
                attachment_id = db_rows.add_attachment(
                    self.volume, state.value, instance_uuid=SERVER
                )["id"]
                self.force(attachment_id)
                self.assertEqual(
                    [other], [row["id"] for row in db_rows.list_attachments(self.volume)]
                )
        self.assertEqual({other}, self.driver.granted())
        self.assertEqual(len(AttachmentState) - 1, len(self.messages()))

    def test_force_delete_of_a_device_in_use_is_refused_until_it_is_closed(self):
        attachment_id = self.attach(connector=CONNECTOR)
        self.complete(attachment_id)
        busy = exception.BackendInUse("A program has it open; close it, then detach again.")
        with mock.patch.object(self.driver, "revoke", side_effect=busy):
            self.assertIn("close it", self.force(attachment_id, status=409).fault)
        row = db_rows.get_volume(self.volume)
        self.assertEqual(("error", "error_detaching"), (row["status"], row["attach_status"]))
        self.force(attachment_id)
        self.assertEqual("available", db_rows.get_volume(self.volume)["status"])

    def test_force_delete_does_not_query_nova(self):
        compute = fake_nova.use_all_attachments(self)
        attachment_id = self.attach(connector=CONNECTOR)
        self.complete(attachment_id)
        self.force(attachment_id)
        self.assertEqual([], compute.requests)
        self.assert_one_message(attachment_id)

    def test_force_delete_of_unfinished_attachment_succeeds(self):
        attachment_id = self.attach(connector=CONNECTOR)
        died = mock.patch.object(
            self.driver, "script", mock.Mock(side_effect=backends.ProcessKilled)
        )
        with died, self.assertRaises(backends.ProcessKilled):
            detach.detach(self.api.backend, attachment_id, self.volume)
        self.assertEqual("disconnecting", db_rows.get_attachment(attachment_id)["state"])
        self.force(attachment_id)
        self.assertEqual(
            ([], set()), (db_rows.list_attachments(self.volume), self.driver.granted())
        )
        self.assert_one_message(attachment_id)

    def test_force_delete_with_failing_backend_reports_and_notifies(self):
        attachment_id = self.attach(connector=CONNECTOR)
        with self.driver.failing("revoke"):
            answer = self.force(attachment_id, status=500)
        self.assertIn("could not be disconnected", answer.fault)
        self.assertEqual("disconnect_failed", db_rows.get_attachment(attachment_id)["state"])
        self.assertRegex(self.messages()[0], "could not revoke the host's access")
        self.assertRegex(self.messages()[1], "User root had attachment")
        self.force(attachment_id)
        self.assertEqual(set(), self.driver.granted())

    def test_force_delete_with_backend_down_changes_nothing(self):
        attachment_id = self.attach(connector=CONNECTOR)
        self.complete(attachment_id)
        self.api.backend.error = "The cable is out."
        answer = self.force(attachment_id, status=503)
        self.assertIn("The cable is out", answer.fault)
        self.assertEqual("attached", db_rows.get_attachment(attachment_id)["state"])
        self.assertEqual([], self.messages(), "nothing was done")

    def test_force_delete_without_manager_deletes_reservations_only(self):
        attachment_id, reserved = self.attach(connector=CONNECTOR), self.attach(OTHER_SERVER)
        db_rows.change_volume(self.volume, host="nowhere@fake#pool")
        answer = self.force(attachment_id, status=503)
        self.assertIn("No volume manager serves nowhere@fake", answer.fault)
        self.force(reserved)
        self.assertEqual(
            [attachment_id], [row["id"] for row in db_rows.list_attachments(self.volume)]
        )
        self.assert_one_message(reserved)

    def test_force_delete_of_unknown_attachment_returns_404(self):
        self.force("99999999-9999-4999-8999-999999999999", status=404)
        self.assertEqual([], self.messages())


class OlderCallTest(Case):
    def test_os_force_detach_notifies_the_owner(self):
        attachment_id, other = self.attach(connector=CONNECTOR), self.attach(OTHER_SERVER)
        for identity in (attachment_id, other):
            self.act(identity)
        self.assertEqual([], db_rows.list_attachments(self.volume))
        self.assertEqual(2, len(self.messages()))
        self.assertIn(f"User root had attachment {other} deleted by force", self.messages()[0])

    def act(self, identity, status=202):
        body = {"os-force_detach": {"attachment_id": identity}}
        path = f"/volumes/{self.volume}/action"
        answer = self.api.request("POST", path, body, token=wsgi_api.ADMIN)
        self.assertEqual(status, answer.status, answer.raw)


class ChangedTest(Case):
    """A Compute whose servers use all their attachments."""

    def setUp(self):
        super().setUp()
        fake_nova.use_all_attachments(self)

    def test_reconnect_during_delete_of_failed_attachment_keeps_the_volume(self):
        attachment_id = self.attach()
        with self.driver.failing("grant", final=True):
            self.connect(attachment_id, status=500)
        checked = detach_guard.check

        def check(*given):
            said = checked(*given)
            self.connect(attachment_id)
            self.complete(attachment_id)
            return said

        with mock.patch.object(detach_guard, "check", check):
            answer = self.api.request("DELETE", f"/attachments/{attachment_id}")
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn(f"Attachment {attachment_id} has become attached since", answer.fault)
        self.assertEqual("attached", db_rows.get_attachment(attachment_id)["state"])
        self.assertEqual({attachment_id}, self.driver.granted())
