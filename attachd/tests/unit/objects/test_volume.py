# SPDX-License-Identifier: Apache-2.0
"""Volumes and their rows in a database; functional/test_databases.py has the servers."""

import datetime

from attachd import context, exception
from attachd.db.attachments import attachment_store
from attachd.db.volumes import volume_store
from attachd.objects import (
    Attachment,
    Volume,
    backend_of,
)
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001  rows have no zone


class VolumeTest(databases.DatabaseCase):
    """Each method is one call of the database."""

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext(user_id="u", project_id=db_rows.PROJECT)

    def _create(self, **values):
        values = {"project_id": db_rows.PROJECT, "user_id": "u", "size_gib": 2, **values}
        return Volume.create(self.context, values)

    def test_create_stores_state_creating_and_owner(self):
        volume = self._create(host="here@fake#pool", metadata={"k": "v"})
        row = db_rows.get_volume(volume.id)
        self.assertEqual(("creating", "here@fake"), (row["status"], row["owner"]))
        self.assertEqual({"k": "v"}, volume.metadata)

    def test_create_returns_same_values_as_get(self):
        volume = self._create(host="here@fake#pool", name="n", metadata={"k": "v"})
        loaded = Volume.get(self.context, volume.id)
        for name in Volume.fields:
            self.assertEqual(getattr(loaded, name), getattr(volume, name), name)

    def test_get_of_other_project_raises_not_found_except_admin(self):
        volume = self._create()
        other = context.RequestContext(project_id="other")
        with self.assertRaises(exception.VolumeNotFound):
            Volume.get(other, volume.id)
        admin = context.RequestContext(project_id="other", is_admin=True)
        self.assertEqual(volume.id, Volume.get(admin, volume.id).id)

    def test_fire_stores_values_and_loads_state(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        volume.fire(Event.EXTEND, new_size_gib=5)
        row = db_rows.get_volume(volume.id)
        stored = (row["state"], row["new_size_gib"], row["owner"])
        self.assertEqual(("extending", 5, "here@fake"), stored)
        self.assertEqual(("extending", "extending"), (volume.state, volume.status))

    def test_fire_of_changed_row_raises_invalid_transition(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        db_rows.change_volume(volume.id, state="deleting")
        with self.assertRaises(exception.InvalidTransition):
            volume.fire(Event.EXTEND, new_size_gib=5)
        self.assertEqual("ready", volume.state)

    def test_backend_is_host_without_pool(self):
        cases = {"here@fake#pool": "here@fake", "here@fake": "here@fake", "": "", None: ""}
        self.assertEqual(cases, {host: backend_of(host) for host in cases})
        self.assertEqual("here@fake", Volume(host="here@fake#pool").backend)


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
        found = self._assert_kept(Volume, volume_store.get(self.volume, None))
        self.assertEqual(set(Volume.fields), set(found))
        self.assertEqual((True, WHEN), (found["shared_targets"], found["launched_at"]))

    def test_created_volume_row_has_values_of_fields(self):
        values = {"project_id": "p", "user_id": "u", "size_gib": 1, "host": "here@fake#pool"}
        row = volume_store.create(values, {"a": "b"})
        self.assertEqual({"a": "b"}, self._assert_kept(Volume, row)["metadata"])

    def test_attachment_row_has_values_of_fields(self):
        found = self._assert_kept(Attachment, attachment_store.get(self.attachment, None))
        self.assertEqual(set(Attachment.fields), set(found))
        self.assertEqual((WHEN, WHEN), (found["attached_at"], found["expires_at"]))

    def test_listed_attachment_rows_have_values_of_fields(self):
        for row in attachment_store.list_of_volumes([self.volume]):
            self._assert_kept(Attachment, row)

    def test_reserved_attachment_row_has_values_of_fields(self):
        values = {"project_id": db_rows.PROJECT, "user_id": "u", "connector": {"host": "x"}}
        self._assert_kept(Attachment, attachment_store.reserve(self.volume, values))
