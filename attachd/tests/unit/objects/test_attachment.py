# SPDX-License-Identifier: Apache-2.0
"""An attachment's verbs, on a real database."""

import unittest

from attachd import context, exception
from attachd.api.attachments import view
from attachd.objects import Attachment, Volume
from attachd.objects.attachment import connection_data, flat_connection, service_uuid
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows

SERVER = "11111111-1111-1111-1111-111111111111"


def _plain(row):
    return {(name, value) for name, value in row.items() if isinstance(value, str)}


class AttachmentTest(unittest.TestCase):
    """Each verb is one call of the database."""

    def setUp(self):
        super().setUp()
        databases.use(self)
        self.context = context.RequestContext(user_id="u", project_id=db_rows.PROJECT)
        self.volume_id = db_rows.add_volume()["id"]

    def _reserve(self, *args):
        return Attachment.reserve(self.context, Volume.get(self.context, self.volume_id), *args)

    def test_a_reservation_is_stored_and_takes_the_volume(self):
        mine = self._reserve(SERVER, "ro")
        row = db_rows.get_attachment(mine.id)
        expected = {"state": "reserved", "instance_uuid": SERVER, "mode": "ro", "user_id": "u"}
        self.assertLessEqual(expected.items() | {("project_id", db_rows.PROJECT)}, _plain(row))
        self.assertEqual("reserved", db_rows.get_volume(self.volume_id)["status"])

    def test_what_clients_do_not_know_as_an_attachment_is_not_found(self):
        for kind, state in (("hold", "held"), ("connection", "connected")):
            mine = db_rows.add_attachment(self.volume_id, state, kind=kind)["id"]
            with self.assertRaisesRegex(exception.AttachmentNotFound, mine):
                Attachment.get(self.context, mine)

    def test_a_reservation_is_at_once_what_a_later_load_gives(self):
        mine = self._reserve(SERVER)
        loaded = Attachment.get(self.context, mine.id)
        for name in Attachment.fields:
            if name != "volume_status":
                self.assertEqual(getattr(loaded, name), getattr(mine, name), name)

    def test_a_reservation_of_a_read_only_volume_is_for_reading(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        self.assertEqual("ro", self._reserve(SERVER, "rw").mode)

    def test_an_administrators_reservation_belongs_to_the_volumes_project(self):
        self.context = context.RequestContext(project_id="ops", is_admin=True)
        self.assertEqual(db_rows.PROJECT, self._reserve().project_id)

    def test_a_volume_that_is_taken_is_not_reserved(self):
        self._reserve()
        with self.assertRaises(exception.VolumeNotAvailable):
            self._reserve()

    def test_another_projects_attachment_is_not_found(self):
        mine = db_rows.add_attachment(self.volume_id)["id"]
        stranger = context.RequestContext(project_id="other")
        with self.assertRaises(exception.AttachmentNotFound):
            Attachment.get(stranger, mine)
        admin = context.RequestContext(project_id="other", is_admin=True)
        self.assertEqual(mine, Attachment.get(admin, mine).id)

    def test_it_knows_its_backend_and_its_volumes_status(self):
        mine = Attachment.get(self.context, db_rows.add_attachment(self.volume_id)["id"])
        self.assertEqual(("here@fake", "reserved"), (mine.backend, mine.volume_status))

    def test_it_is_called_what_the_wire_calls_it(self):
        for state in AttachmentState:
            self.assertEqual(state.wire, Attachment(state=state.value).wire_state)

    def test_completing_is_stored_and_shown(self):
        mine = Attachment.get(
            self.context, db_rows.add_attachment(self.volume_id, "connected")["id"]
        )
        mine.complete()
        self.assertEqual("attached", mine.state)
        self.assertEqual("attached", db_rows.get_attachment(mine.id)["state"])
        self.assertEqual("in-use", db_rows.get_volume(self.volume_id)["status"])

    def test_completing_goes_by_the_row_and_not_by_what_was_loaded(self):
        mine = Attachment.get(
            self.context, db_rows.add_attachment(self.volume_id, "connected")["id"]
        )
        db_rows.change_attachment(mine.id, state="disconnecting")
        with self.assertRaises(exception.InvalidTransition):
            mine.complete()
        self.assertEqual("connected", mine.state)

    def test_a_reservation_can_be_given_up(self):
        self._reserve().cancel()
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])

    def test_what_is_more_than_a_reservation_by_now_is_not_given_up(self):
        mine = self._reserve()
        db_rows.change_attachment(mine.id, state="connecting")
        with self.assertRaises(exception.InvalidTransition):
            mine.cancel()
        self.assertEqual("connecting", db_rows.get_attachment(mine.id)["state"])


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


class FlatTest(unittest.TestCase):
    def test_it_is_what_the_api_shows(self):
        self.assertEqual(view.detail(ROW)["connection_info"], flat_connection(ROW))

    def test_it_has_the_protocol_and_what_that_needs_and_what_a_driver_left_unsaid(self):
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

    def test_whoever_did_not_say_how_may_write(self):
        flat = flat_connection({**ROW, "mode": None, "connector": None})
        self.assertEqual(("rw", False), (flat["access_mode"], flat["enforce_multipath"]))

    def test_what_the_driver_says_counts(self):
        data = connection_data({"data": {"access_mode": "ro", "cacheable": True}}, "rw")
        self.assertEqual(("ro", True), (data["access_mode"], data["cacheable"]))


class ServiceUuidTest(unittest.TestCase):
    def test_a_backend_keeps_its_name_and_others_have_others(self):
        # Hosts hold locks of that name: another release must not change it.
        expected = "50567e3a-daeb-5d06-a0f3-d0e90d78d9a2"
        self.assertEqual(expected, service_uuid("here@fake"))
        self.assertNotEqual(expected, service_uuid("there@fake"))
