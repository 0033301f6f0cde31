# SPDX-License-Identifier: Apache-2.0
"""The values of the database are those of the fields of objects; on the servers, too, in
functional/test_databases.py."""

import datetime

from attachd.db.attachments import store as attachments
from attachd.db.volumes import store as volumes
from attachd.objects import Attachment, Volume
from attachd.tests.fixtures import databases, db_rows

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001  rows have no zone


class RowsTest(databases.DatabaseCase):
    """from_row() takes values as they are, so they have to be what fields would make of them."""

    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(
            multiattach=True,
            shared_targets=True,
            bootable=False,
            admin_metadata={"readonly": "True"},
            launched_at=WHEN,
        )["id"]
        self.attachment = db_rows.add_attachment(
            self.volume,
            "attached",
            mode="ro",
            connection_info={"data": {"target_lun": 1}},
            attached_at=WHEN,
            expires_at=WHEN,
            agent="compute-1",
        )["id"]

    def _assert_kept(self, kind, row):
        made = kind.from_row(None, row)
        found = {name: getattr(made, name) for name in made.fields if name in row}
        expected = {name: made.fields[name].coerce(made, name, row[name]) for name in found}
        self.assertEqual(expected, found)
        self.assertEqual(
            {name: type(value) for name, value in expected.items()},
            {name: type(value) for name, value in found.items()},
        )
        return found

    def test_volume_row_has_values_of_fields(self):
        found = self._assert_kept(Volume, volumes.get(self.volume, None))
        self.assertEqual(set(Volume.fields), set(found))
        self.assertEqual((True, WHEN), (found["shared_targets"], found["launched_at"]))

    def test_created_volume_row_has_values_of_fields(self):
        values = {"project_id": "p", "user_id": "u", "size_gib": 1, "host": "here@fake#pool"}
        row = volumes.create(values, {"a": "b"})
        self.assertEqual({"a": "b"}, self._assert_kept(Volume, row)["metadata"])

    def test_attachment_row_has_values_of_fields(self):
        found = self._assert_kept(Attachment, attachments.get(self.attachment, None))
        self.assertEqual(set(Attachment.fields), set(found))
        self.assertEqual((WHEN, WHEN), (found["attached_at"], found["expires_at"]))

    def test_listed_attachment_rows_have_values_of_fields(self):
        for row in attachments.list_of_volumes([self.volume]):
            self._assert_kept(Attachment, row)

    def test_reserved_attachment_row_has_values_of_fields(self):
        values = {"project_id": "p", "user_id": "u", "connector": {"host": "x"}}
        self._assert_kept(Attachment, attachments.reserve(self.volume, values))
