# SPDX-License-Identifier: Apache-2.0
"""The legacy attachment that a new connection serves.

The other rules are tested in test_connect_rules.py.
"""

from attachd.db.attachments import legacy_rules
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.db.attachments import test_legacy


class LaterTest(test_legacy.Case):
    """For whom a connection is that is opened after the attachment was made."""

    def later(self, user="u"):
        """Return what a connection would serve that this user opens now."""
        volume, held = db_rows.get_volume(self.volume_id), db_rows.list_attachments(self.volume_id)
        return legacy_rules.find_parent(volume, held, "anywhere", user).get("parent_id")

    def test_later_connection_gets_only_waiting_attachment_as_parent(self):
        self.multiattach()
        attachment_id = self.attach()["id"]
        self.assertEqual([attachment_id, None], [self.later(), self.later("other")])
        self.hold()
        self.assertIsNone(self.later())
        self.release()
        self.connect(parent_id=attachment_id)
        self.assertIsNone(self.later())
        second = self.attach(test_legacy.OTHER_SERVER)["id"]
        self.assertEqual(second, self.later())
        self.attach(None, host="compute-3")
        self.assertIsNone(self.later())

    def test_later_connection_gets_attachment_as_parent(self):
        attachment_id = self.attach()["id"]
        volume, held = db_rows.get_volume(self.volume_id), db_rows.list_attachments(self.volume_id)
        self.assertEqual(
            attachment_id,
            legacy_rules.find_parent(volume, held, "anywhere", "other")["parent_id"],
        )
        self.multiattach()
        volume = db_rows.get_volume(self.volume_id)
        self.assertEqual({}, legacy_rules.find_parent(volume, held, "anywhere", "other"))
        self.attach(test_legacy.OTHER_SERVER, host="compute-2")
        held = db_rows.list_attachments(self.volume_id)
        bound = legacy_rules.find_parent(volume, held, "compute-2", "other")
        self.assertEqual(test_legacy.OTHER_SERVER, bound["instance_uuid"])


class ParentValuesTest(test_legacy.Case):
    """What a connection is for that is opened after the attachments were made."""

    def setUp(self):
        super().setUp()
        self.multiattach()
        self.own = self.attach(server=None, host="compute-1")["id"]

    def serves(self, user="u", host="compute-1"):
        held = db_rows.list_attachments(self.volume_id)
        return legacy_rules.find_parent(db_rows.get_volume(self.volume_id), held, host, user).get(
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
