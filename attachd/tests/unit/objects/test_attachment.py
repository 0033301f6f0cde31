# SPDX-License-Identifier: Apache-2.0
"""Attachments and their rows in a database; functional/test_databases.py has the servers."""

import datetime
import unittest

from attachd import context, exception
from attachd.api.attachments import view
from attachd.objects import (
    Attachment,
    NewAttachment,
    Volume,
    connection_data,
    flat_connection,
    service_uuid,
)
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows

SERVER = "11111111-1111-1111-1111-111111111111"
WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001  rows have no zone
STORED = {"driver_volume_type": "iscsi", "data": {"target_portal": "p", "auth_password": "s"}}
ROW = {
    "id": "a",
    "kind": "attachment",
    "state": "connected",
    "instance_uuid": None,
    "volume_id": "v",
    "attached_at": None,
    "mode": "ro",
    "connection_info": STORED,
    "connector": {"host": "h", "enforce_multipath": True},
}


def _plain(row):
    return {(name, value) for name, value in row.items() if isinstance(value, str)}


class AttachmentTest(databases.DatabaseCase):
    """Each method is one call of the database."""

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext(user_id="u", project_id=db_rows.PROJECT)
        self.volume_id = db_rows.add_volume()["id"]

    def _reserve(self, **requested):
        volume = Volume.get(self.context, self.volume_id)
        return Attachment.reserve(self.context, volume, NewAttachment(**requested))

    def test_reserve_stores_row_and_volume_status(self):
        attachment = self._reserve(instance_uuid=SERVER, mode="ro")
        row = db_rows.get_attachment(attachment.id)
        expected = {"state": "reserved", "instance_uuid": SERVER, "mode": "ro", "user_id": "u"}
        self.assertLessEqual(expected.items() | {("project_id", db_rows.PROJECT)}, _plain(row))
        self.assertEqual("reserved", db_rows.get_volume(self.volume_id)["status"])

    def test_get_hold_or_connection_raises_not_found(self):
        for kind, state in (("hold", "held"), ("connection", "connected")):
            attachment_id = db_rows.add_attachment(self.volume_id, state, kind=kind)["id"]
            with self.assertRaisesRegex(exception.AttachmentNotFound, attachment_id):
                Attachment.get(self.context, attachment_id)

    def test_reserve_returns_same_values_as_get(self):
        attachment = self._reserve(instance_uuid=SERVER)
        loaded = Attachment.get(self.context, attachment.id)
        for name in Attachment.fields:
            if name != "volume_status":
                self.assertEqual(getattr(loaded, name), getattr(attachment, name), name)

    def test_reserve_read_only_volume_has_mode_ro(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        self.assertEqual("ro", self._reserve(instance_uuid=SERVER, mode="rw").mode)

    def test_reserve_by_admin_has_project_of_volume(self):
        self.context = context.RequestContext(project_id="ops", is_admin=True)
        self.assertEqual(db_rows.PROJECT, self._reserve().project_id)

    def test_reserve_taken_volume_raises_not_available(self):
        self._reserve()
        with self.assertRaises(exception.VolumeNotAvailable):
            self._reserve()

    def test_get_of_other_project_raises_not_found_except_admin(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        other = context.RequestContext(project_id="other")
        with self.assertRaises(exception.AttachmentNotFound):
            Attachment.get(other, attachment_id)
        admin = context.RequestContext(project_id="other", is_admin=True)
        self.assertEqual(attachment_id, Attachment.get(admin, attachment_id).id)

    def test_get_has_backend_and_volume_status(self):
        attachment = Attachment.get(self.context, db_rows.add_attachment(self.volume_id)["id"])
        self.assertEqual(("here@fake", "reserved"), (attachment.backend, attachment.volume_status))

    def test_wire_state_is_that_of_state_table(self):
        for state in AttachmentState:
            self.assertEqual(state.wire, Attachment(state=state.value).wire_state)

    def test_complete_stores_and_loads_state(self):
        attachment = Attachment.get(
            self.context, db_rows.add_attachment(self.volume_id, "connected")["id"]
        )
        attachment.complete()
        self.assertEqual("attached", attachment.state)
        self.assertEqual("attached", db_rows.get_attachment(attachment.id)["state"])
        self.assertEqual("in-use", db_rows.get_volume(self.volume_id)["status"])

    def test_complete_of_changed_row_raises_invalid_transition(self):
        attachment = Attachment.get(
            self.context, db_rows.add_attachment(self.volume_id, "connected")["id"]
        )
        db_rows.change_attachment(attachment.id, state="disconnecting")
        with self.assertRaises(exception.InvalidTransition):
            attachment.complete()
        self.assertEqual("connected", attachment.state)

    def test_cancel_reservation_deletes_row(self):
        self._reserve().cancel()
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])

    def test_cancel_of_changed_row_raises_invalid_transition(self):
        attachment = self._reserve()
        db_rows.change_attachment(attachment.id, state="connecting")
        with self.assertRaises(exception.InvalidTransition):
            attachment.cancel()
        self.assertEqual("connecting", db_rows.get_attachment(attachment.id)["state"])


class FlatTest(unittest.TestCase):
    def test_flat_equals_connection_info_of_api(self):
        self.assertEqual(view.detail(ROW)["connection_info"], flat_connection(ROW))

    def test_flat_has_protocol_data_and_defaults(self):
        expected = {
            "driver_volume_type": "iscsi",
            "target_portal": "p",
            "auth_password": "s",
            "access_mode": "ro",
            "attachment_id": "a",
            "enforce_multipath": True,
            "qos_specs": None,
            "encrypted": False,
            "cacheable": False,
        }
        self.assertEqual(expected, flat_connection(ROW))

    def test_flat_without_mode_is_read_write(self):
        flat = flat_connection({**ROW, "mode": None, "connector": None})
        self.assertEqual(("rw", False), (flat["access_mode"], flat["enforce_multipath"]))

    def test_data_of_driver_overrides_mode(self):
        data = connection_data({"data": {"access_mode": "ro", "cacheable": True}}, "rw")
        self.assertEqual(("ro", True), (data["access_mode"], data["cacheable"]))


class ServiceUuidTest(unittest.TestCase):
    def test_service_uuid_is_stable_and_unique_per_backend(self):
        # Hosts hold locks of that name: another release must not change it.
        expected = "50567e3a-daeb-5d06-a0f3-d0e90d78d9a2"
        self.assertEqual(expected, service_uuid("here@fake"))
        self.assertNotEqual(expected, service_uuid("there@fake"))
