# SPDX-License-Identifier: Apache-2.0
"""The modes of legacy attachments and their connections."""

from attachd import exception
from attachd.db.attachments import attachment_store
from attachd.db.types import type_store
from attachd.states import Event
from attachd.tests.fixtures import db_rows
from attachd.tests.fixtures.db_rows import OTHER_CONNECTOR
from attachd.tests.unit.db.attachments import test_legacy


class ModeTest(test_legacy.Case):
    """How an attachment is attached, and what that means for its connections."""

    def stored_modes(self, row):
        stored = db_rows.get_attachment(row["id"])
        return stored["mode"], stored["asked_mode"]

    def test_attach_mode_is_rw_where_host_may_write(self):
        opened = self.connect(mode="rw")
        attachment_id = self.attach(mode="ro")
        self.assertEqual(("rw", "ro"), self.stored_modes(attachment_id))
        self.assertEqual(
            "rw", db_rows.get_volume(self.volume_id)["admin_metadata"]["attached_mode"]
        )
        attachment_store.transition(opened, self.volume_id, Event.DISCONNECT)
        self.assertEqual(("rw", "ro"), self.stored_modes(attachment_id))
        attachment_store.transition(opened, self.volume_id, Event.REVOKED)
        self.assertEqual(("ro", "ro"), self.stored_modes(attachment_id))

    def test_attach_mode_is_rw_while_one_host_may_write(self):
        opened, _other = self.connect(mode="rw"), self.connect(OTHER_CONNECTOR, mode="rw")
        attachment_id = self.attach(mode="ro")
        for event in (Event.DISCONNECT, Event.REVOKED):
            attachment_store.transition(opened, self.volume_id, event)
        self.assertEqual(("rw", "ro"), self.stored_modes(attachment_id))

    def test_attach_rw_with_ro_connection_is_refused(self):
        self.connect(mode="ro")
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, "host compute-1 has read-only access"
        ):
            self.attach(mode="rw")
        self.assertEqual(("ro", "ro"), self.stored_modes(self.attach(mode="ro")))

    def test_attach_without_mode_takes_mode_of_connection(self):
        for mode in ("ro", "rw"):
            self.volume_id = db_rows.add_volume()["id"]
            self.connect(mode=mode)
            self.assertEqual((mode, mode), self.stored_modes(self.attach(mode=None)))
        self.volume_id = db_rows.add_volume()["id"]
        self.assertEqual(("rw", "rw"), self.stored_modes(self.attach(mode=None)))

    def test_attach_rw_of_read_only_volume_is_refused(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        self.connect(mode="ro")
        with self.assertRaisesRegex(exception.InvalidVolumeAttachMode, "read-only"):
            self.attach(mode=None)

    def one_writer(self):
        kind = type_store.create(
            {"name": "one writer", "extra_specs": {"multiattach": "<is> True", "mode": "RO"}}
        )
        db_rows.change_volume(self.volume_id, multiattach=True, volume_type_id=kind["id"])

    def test_attach_with_one_writer_counts_connection_as_writer(self):
        self.one_writer()
        self.connect(mode="rw", user_id="other")
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, "the connection of host compute-1"
        ):
            self.attach(mode="rw")
        self.attach(mode="ro")

    def test_attach_rw_by_own_rw_connection_succeeds(self):
        self.one_writer()
        self.connect(mode="rw")
        self.connect(OTHER_CONNECTOR, mode="ro")
        self.attach(mode="rw")
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, f"one writer.*{test_legacy.SERVER}"
        ):
            self.attach(test_legacy.OTHER_SERVER, mode="rw")
        self.attach(test_legacy.OTHER_SERVER, mode="ro")


class ReservedTest(test_legacy.Case):
    """A reservation of the newer calls that os-attach completes."""

    def test_attach_of_reservation_stores_mode_of_host(self):
        attachment_id = db_rows.add_attachment(
            self.volume_id, mode="ro", instance_uuid=test_legacy.SERVER, user_id="u"
        )["id"]
        self.connect(mode="rw")
        self.attach(mode=None)
        row = db_rows.get_attachment(attachment_id)
        self.assertEqual(("attached", "rw", "ro"), (row["state"], row["mode"], row["asked_mode"]))
