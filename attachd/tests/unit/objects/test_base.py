# SPDX-License-Identifier: Apache-2.0
"""Objects: creation from rows, versions, registry and scope."""

import datetime
import unittest

from oslo_versionedobjects import fixture

from attachd import context, objects
from attachd.db import models
from attachd.objects import (
    Attachment,
    Volume,
)

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  rows have no zone
ROW = {
    "id": models.new_id(),
    "volume_id": models.new_id(),
    "project_id": "p",
    "user_id": None,
    "instance_uuid": None,
    "kind": "attachment",
    "state": "connected",
    "mode": "ro",
    "host": "compute-1",
    "mountpoint": "/dev/vdb",
    "connector": {"host": "compute-1", "x": [1, None, {"y": "\u2603"}]},
    "connection_info": {"driver_volume_type": "iscsi", "data": {"target_lun": 1}},
    "connection_key": None,
    "expires_at": None,
    "error": None,
    "agent": "compute-1",
    "device": "/dev/sdb",
    "move_from": None,
    "attached_at": WHEN,
    "created_at": WHEN,
    "updated_at": None,
    "volume_host": "here@fake#pool",
    "volume_status": "in-use",
}
FINGERPRINTS = {
    "Attachment": "1.0-b7466c2e9291289186b209e4d1ceb1e8",
    "Volume": "1.0-21e211dddafa3a672e8e463fb9c65622",
}


class FromRowTest(unittest.TestCase):
    """Objects created from rows."""

    def test_from_row_sets_each_field_from_its_column(self):
        made = Attachment.from_row(None, ROW)
        self.assertEqual(set(ROW), set(made.fields))
        self.assertEqual(ROW, {name: getattr(made, name) for name in ROW})

    def test_from_row_builds_what_the_constructor_builds(self):
        made, constructed = Attachment.from_row(None, ROW), Attachment(None, **ROW)
        constructed.obj_reset_changes()
        self.assertEqual(constructed.obj_to_primitive(), made.obj_to_primitive())
        self.assertEqual(set(), made.obj_what_changed())

    def test_to_row_returns_the_columns_that_are_set(self):
        self.assertEqual(ROW, Attachment.from_row(None, ROW).to_row())
        changed = Attachment.from_row(None, {"id": ROW["id"], "secret": "x"})
        changed.state = "attached"
        self.assertEqual({"id": ROW["id"], "state": "attached"}, changed.to_row())

    def test_from_row_ignores_unknown_columns(self):
        made = Attachment.from_row(None, {**ROW, "secret": "x", "generation": 1})
        self.assertNotIn("secret", made)

    def test_from_row_leaves_missing_columns_unset(self):
        made = Attachment.from_row(None, {"id": "a"})
        self.assertFalse(made.obj_attr_is_set("connector"))

    def test_from_row_returns_object_without_changes(self):
        self.assertEqual(set(), Attachment.from_row(None, ROW).obj_what_changed())


class ScopeTest(unittest.TestCase):
    """The project whose rows a caller may read by id."""

    def test_scope_of_member_is_project(self):
        self.assertEqual("p", objects.scope(context.RequestContext(project_id="p")))

    def test_scope_of_admin_is_all_projects(self):
        self.assertIsNone(objects.scope(context.RequestContext(project_id="p", is_admin=True)))
        self.assertEqual("", objects.scope(context.RequestContext(project_id=None)))


class RegistryTest(unittest.TestCase):
    """Objects are found by their names."""

    def test_registry_has_all_objects(self):
        known = objects.Registry.obj_classes()
        self.assertEqual({"Attachment": [Attachment], "Volume": [Volume]}, dict(known))


class VersionsTest(unittest.TestCase):
    """Processes of two releases understand each other only if a version means one thing."""

    def test_fingerprints_of_objects_are_unchanged(self):
        checker = fixture.ObjectVersionChecker(objects.Registry.obj_classes())
        expected, actual = checker.test_hashes(FINGERPRINTS)
        self.assertEqual(expected, actual)

    def test_fingerprint_of_changed_field_differs(self):
        class Changed(objects.Registry.obj_classes()["Volume"][0]):
            fields = {"size_gib": objects.JsonField()}

        checker = fixture.ObjectVersionChecker({"Volume": [Changed]})
        self.assertNotEqual(FINGERPRINTS["Volume"], checker.get_hashes()["Volume"])
