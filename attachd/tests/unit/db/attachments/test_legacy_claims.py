# SPDX-License-Identifier: Apache-2.0
"""The hold that os-attach uses, and the mode of the attachment."""

import contextlib

from attachd import exception
from attachd.db.attachments import attachment_store, connect_rules, legacy
from attachd.db.types import type_store
from attachd.states import Event
from attachd.tests.fixtures import db_rows
from attachd.tests.fixtures.db_rows import OTHER_CONNECTOR
from attachd.tests.unit.db.attachments import test_legacy as test_attachments_legacy


class FindHoldTest(test_attachments_legacy.Case):
    """Whose hold an attachment uses."""

    def setUp(self):
        super().setUp()
        self.multiattach()
        legacy.reserve(self.volume_id, db_rows.PROJECT, "other")

    def test_find_hold_ignores_hold_of_other_user(self):
        self.attach()
        self.assertEqual([("hold", "held"), ("legacy", "attached")], self.kinds())
        self.hold()
        self.attach(test_attachments_legacy.OTHER_SERVER)
        self.assertEqual(["other"], [row["user_id"] for row in self.holds()])

    def holds(self):
        return [row for row in legacy.list_rows(self.volume_id) if row["kind"] == "hold"]

    def test_attach_repeated_uses_no_other_hold(self):
        self.hold()
        self.attach()
        self.hold()
        self.attach()
        self.assertEqual(["other", "u"], [row["user_id"] for row in self.holds()])

    def test_attach_with_hold_of_other_user_is_refused(self):
        for come_in in (lambda: None, self.connect, self.hold):
            come_in()
            expected = exception.Forbidden if come_in != self.hold else ()
            with self.subTest(come_in), contextlib.ExitStack() as stack:
                if expected:
                    stack.enter_context(self.assertRaises(expected))
                legacy.attach(
                    self.volume_id, test_attachments_legacy.claim(), "volume:multiattach"
                )


class ModeTest(test_attachments_legacy.Case):
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
            exception.InvalidVolumeAttachMode, f"one writer.*{test_attachments_legacy.SERVER}"
        ):
            self.attach(test_attachments_legacy.OTHER_SERVER, mode="rw")
        self.attach(test_attachments_legacy.OTHER_SERVER, mode="ro")


class LaterTest(test_attachments_legacy.Case):
    """For whom a connection is that is opened after the attachment was made."""

    def later(self, user="u"):
        """Return what a connection would serve that this user opens now."""
        volume, held = db_rows.get_volume(self.volume_id), db_rows.list_attachments(self.volume_id)
        return connect_rules.find_parent(volume, held, "anywhere", user).get("parent_id")

    def test_later_connection_gets_only_waiting_attachment_as_parent(self):
        self.multiattach()
        attachment_id = self.attach()["id"]
        self.assertEqual([attachment_id, None], [self.later(), self.later("other")])
        self.hold()
        self.assertIsNone(self.later())
        self.release()
        self.connect(parent_id=attachment_id)
        self.assertIsNone(self.later())
        second = self.attach(test_attachments_legacy.OTHER_SERVER)["id"]
        self.assertEqual(second, self.later())
        self.attach(None, host="compute-3")
        self.assertIsNone(self.later())


class ParentValuesTest(test_attachments_legacy.Case):
    """What a connection is for that is opened after the attachments were made."""

    def setUp(self):
        super().setUp()
        self.multiattach()
        self.own = self.attach(server=None, host="compute-1")["id"]

    def serves(self, user="u", host="compute-1"):
        held = db_rows.list_attachments(self.volume_id)
        return connect_rules.find_parent(db_rows.get_volume(self.volume_id), held, host, user).get(
            "parent_id"
        )

    def test_find_parent_names_unconnected_attachment_at_host(self):
        self.assertEqual(self.own, self.serves("other"))
        self.connect(parent_id=self.own)
        self.hold()
        self.assertIsNone(self.serves())
        self.assertIsNone(self.serves("other"))

    def test_find_parent_ignores_failed_connection(self):
        db_rows.add_attachment(
            self.volume_id, "connect_failed", kind="connection", parent_id=self.own, user_id="u"
        )
        self.assertEqual(self.own, self.serves())

    def test_find_parent_skips_detaching_attachment(self):
        for state in ("disconnecting", "disconnect_failed"):
            db_rows.change_attachment(self.own, state=state)
            self.assertIsNone(self.serves(), state)


class ReservedTest(test_attachments_legacy.Case):
    """A reservation of the newer calls that os-attach completes."""

    def test_attach_of_reservation_stores_mode_of_host(self):
        attachment_id = db_rows.add_attachment(
            self.volume_id, mode="ro", instance_uuid=test_attachments_legacy.SERVER, user_id="u"
        )["id"]
        self.connect(mode="rw")
        self.attach(mode=None)
        row = db_rows.get_attachment(attachment_id)
        self.assertEqual(("attached", "rw", "ro"), (row["state"], row["mode"], row["asked_mode"]))
