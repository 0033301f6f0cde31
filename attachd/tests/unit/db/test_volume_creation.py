# SPDX-License-Identifier: Apache-2.0
"""Storing new volumes; on every database by functional/test_databases.py."""

import unittest

from attachd import exception
from attachd.db import types, volume_creation, volumes
from attachd.tests import databases, rows


class StoreTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _insert(self, **values):
        given = {"project_id": rows.PROJECT, "size_gib": 3, "host": "h@b#p"}
        return volume_creation.insert({**given, **values}, values.get("metadata", {}))

    def test_a_new_volume_is_to_be_created_by_its_backend(self):
        row = self._insert()
        self.assertEqual(("creating", "creating"), (row["state"], row["status"]))
        self.assertEqual(("detached", "h@b"), (row["attach_status"], row["owner"]))
        self.assertEqual([row["id"]], [each["id"] for each in volumes.to_recover("h@b", "us")])

    def test_what_is_returned_is_what_is_stored(self):
        of_type = types.create({"name": "t"})
        row = self._insert(
            name="n",
            metadata={"a": "b", "c": "d"},
            volume_type_id=of_type["id"],
            volume_type_name="t",
            multiattach=True,
        )
        self.assertEqual(row, volumes.get(row["id"], rows.PROJECT))

    def test_a_type_that_was_just_deleted_is_not_found(self):
        with self.assertRaisesRegex(exception.VolumeTypeNotFound, "gone"):
            self._insert(volume_type_id="gone")
        self.assertEqual([], rows.volumes())

    def test_a_type_that_has_changed_since_it_was_judged_is_none(self):
        specs = {"multiattach": "<is> True"}
        kind = types.create({"name": "shared", "extra_specs": specs})["id"]
        for judged in ({"type_specs": {}}, {}, {"type_specs": {**specs, "mode": "RO"}}):
            with self.assertRaisesRegex(exception.Conflict, f"{kind} has been changed"):
                self._insert(volume_type_id=kind, **judged)
        self.assertEqual([], rows.volumes())
        self._insert(volume_type_id=kind, type_specs=specs)

    def test_a_volume_that_is_stored_in_another_state_has_no_owner(self):
        row = self._insert(state="ready")
        self.assertEqual(("available", None), (row["status"], row["owner"]))
