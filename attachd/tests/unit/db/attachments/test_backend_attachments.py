# SPDX-License-Identifier: Apache-2.0
"""The attachments of a page of volumes, as drivers get them."""

from attachd import states
from attachd.db.attachments import backend_attachments
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, db_rows


class BackendAttachmentsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        for state in AttachmentState:
            db_rows.add_attachment(self.volume, state)
        other = db_rows.add_volume()["id"]
        db_rows.add_attachment(other, "attached")

    def test_list_live_returns_attachments_with_access(self):
        found = backend_attachments.list_live([self.volume])
        expected = {
            row["id"]
            for row in map(db_rows.get_attachment, (item["id"] for item in found))
            if row["state"] in set(states.LIVE)
        }
        self.assertEqual(expected, {row["id"] for row in found})
        self.assertEqual(len(states.LIVE), len(found))

    def test_list_attached_returns_observable_ones_alone_if_asked(self):
        made = db_rows.add_attachment(self.volume, "attached", agent="h1")["id"]
        self.assertEqual(2, len(backend_attachments.list_attached([self.volume])))
        found = backend_attachments.list_attached([self.volume], observable_only=True)
        self.assertEqual([made], [row["id"] for row in found])
        observed = db_rows.add_attachment(self.volume, "attached", condition_state="ok")["id"]
        found = backend_attachments.list_attached([self.volume], observable_only=True)
        self.assertEqual({made, observed}, {row["id"] for row in found})

    def test_volume_of_row_is_what_drivers_get(self):
        (row,) = backend_attachments.list_attached([self.volume])
        volume, known = backend_attachments.volume_of(row), db_rows.get_volume(self.volume)
        for name in ("id", "size_gib", "name", "project_id", "host", "provider", "multiattach"):
            self.assertEqual(known[name], volume[name], name)
