# SPDX-License-Identifier: Apache-2.0
"""Tests of the deletion of volumes by force."""

from unittest import mock

import webob

from attachd import exception
from attachd.api.volumes import backend_calls, force_delete
from attachd.db.cluster import services
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows


class ForceDeleteTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.enterContext(mock.patch.object(force_delete, "manager_api", self.manager_api))
        self.manager_api.detach.side_effect = self.detached

    def detached(self, _ctx, attachment, _among):
        self.assertEqual("here@fake", attachment.backend)
        db_rows.remove_attachment(attachment.id)

    def delete(self, volume_id):
        ctx = api_context.make_context(*api_context.ADMIN)
        force_delete.delete(ctx, Volume.get(ctx, volume_id), webob.Request.blank("/"))

    def test_force_delete_of_attached_volume_is_refused_by_name(self):
        volume = db_rows.add_volume(multiattach=True)
        db_rows.add_attachment(volume["id"], "connecting")
        attached = db_rows.add_attachment(volume["id"], "attached")["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, attached):
            self.delete(volume["id"])
        self.manager_api.detach.assert_not_called()
        self.assertEqual(2, len(db_rows.list_attachments(volume["id"])))

    def test_force_delete_with_possible_agent_device_is_refused(self):
        for state in ("connected", "attached", "withdrawing"):
            volume = db_rows.add_volume()
            attachment_id = db_rows.add_attachment(volume["id"], state, agent="node-1")["id"]
            with self.assertRaisesRegex(exception.InvalidVolume, attachment_id):
                self.delete(volume["id"])
        self.manager_api.detach.assert_not_called()

    def test_force_delete_with_agent_device_made_meanwhile_is_refused(self):
        volume = db_rows.add_volume()
        db_rows.add_attachment(volume["id"], "connecting", agent="node-1")
        allowed = []

        def detach(ctx, attachment, states):
            allowed.extend(states)
            self.detached(ctx, attachment, states)

        self.manager_api.detach.side_effect = detach
        self.delete(volume["id"])
        self.assertIn("connecting", allowed)
        self.assertFalse({"connected", "attached", "withdrawing"} & set(allowed))

    def test_force_delete_removes_unfinished_attachments(self):
        volume = db_rows.add_volume()
        unfinished = ("connecting", "connected", "disconnecting", "connect_unknown")
        attachment_ids = [
            db_rows.add_attachment(volume["id"], state)["id"] for state in unfinished
        ]
        for state in ("reserved", "held", "connect_failed"):
            db_rows.add_attachment(volume["id"], state)
        self.delete(volume["id"])
        self.assertEqual(
            attachment_ids,
            [mock_call.args[1].id for mock_call in self.manager_api.detach.mock_calls],
        )
        left = [row["state"] for row in db_rows.list_attachments(volume["id"])]
        self.assertEqual(["connect_failed"], left)
        self.assertEqual("deleting", db_rows.get_volume(volume["id"])["status"])

    def test_force_delete_on_frozen_backend_keeps_attachments(self):
        api_context.report_backend("here@fake")
        services.freeze(api_context.BINARY, "here@fake")
        volume = db_rows.add_volume(host="here@fake#pool")
        for state in ("reserved", "connecting", "held"):
            db_rows.add_attachment(volume["id"], state)
        with self.assertRaises(exception.BackendFrozen):
            self.delete(volume["id"])
        self.assertEqual(3, len(db_rows.list_attachments(volume["id"])))
        self.manager_api.detach.assert_not_called()

    def test_force_delete_with_host_still_connected_keeps_volume(self):
        volume = db_rows.add_volume()
        db_rows.add_attachment(volume["id"], "disconnect_failed")
        stuck = exception.DisconnectFailed(attachment_id="a", reason="It is stuck.")
        self.manager_api.detach.side_effect = stuck
        with self.assertRaises(exception.DisconnectFailed):
            self.delete(volume["id"])
        self.assertEqual("error", db_rows.get_volume(volume["id"])["status"])
        self.manager_api.delete_volume.assert_not_called()

    def test_force_delete_with_attachment_deleted_meanwhile_succeeds(self):
        volume = db_rows.add_volume()
        attachment_id = db_rows.add_attachment(volume["id"], "disconnecting")["id"]

        def gone(_ctx, attachment, _among):
            db_rows.remove_attachment(attachment.id)
            raise exception.AttachmentNotFound(attachment_id=attachment_id)

        self.manager_api.detach.side_effect = gone
        self.delete(volume["id"])
        self.assertEqual("deleting", db_rows.get_volume(volume["id"])["status"])
