# SPDX-License-Identifier: Apache-2.0
"""What all objects share: from a row, over the wire, and whose rows are seen."""

import datetime
import json
import unittest

from oslo_versionedobjects import exception

from attachd import context
from attachd.db import models
from attachd.objects import Attachment, Volume, base

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
    "attached_at": WHEN,
    "created_at": WHEN,
    "updated_at": None,
    "volume_host": "here@fake#pool",
    "volume_status": "in-use",
}


class FromRowTest(unittest.TestCase):
    """Objects are made of rows."""

    def test_every_field_is_taken_from_its_column(self):
        made = Attachment.from_row(None, ROW)
        self.assertEqual(set(ROW), set(made.fields))
        self.assertEqual(ROW, {name: getattr(made, name) for name in ROW})

    def test_what_an_object_does_not_know_is_left_out(self):
        made = Attachment.from_row(None, {**ROW, "secret": "x", "generation": 1})
        self.assertNotIn("secret", made)

    def test_what_the_row_lacks_stays_unset(self):
        made = Attachment.from_row(None, {"id": "a"})
        self.assertFalse(made.obj_attr_is_set("connector"))

    def test_a_fresh_object_has_no_changes(self):
        self.assertEqual(set(), Attachment.from_row(None, ROW).obj_what_changed())


class SerializerTest(unittest.TestCase):
    """From one process to another."""

    def setUp(self):
        super().setUp()
        self.serializer = base.Serializer()
        self.context = context.RequestContext(project_id="p")

    def _over_the_wire(self, entity):
        sent = json.dumps(self.serializer.serialize_entity(self.context, entity))
        return self.serializer.deserialize_entity(self.context, json.loads(sent))

    def test_an_object_arrives_as_it_was(self):
        got = self._over_the_wire(Attachment.from_row(None, ROW))
        self.assertIsInstance(got, Attachment)
        self.assertEqual(ROW, {name: getattr(got, name) for name in ROW})

    def test_what_was_unset_arrives_unset(self):
        (got,) = self._over_the_wire([Attachment.from_row(None, {"id": "a", "state": "attached"})])
        self.assertEqual(("a", "attached"), (got.id, got.state))
        self.assertFalse(got.obj_attr_is_set("connection_info"))

    def test_plain_values_arrive_as_they_are(self):
        plain = {"connector": {"host": "h", "none": None}, "list": [1, "two"]}
        self.assertEqual(plain, self._over_the_wire(plain))

    def test_the_wire_says_whose_object_it_is(self):
        sent = self.serializer.serialize_entity(None, Attachment.from_row(None, ROW))
        self.assertEqual("attachd", sent["attachd_object.namespace"])


class OtherReleasesTest(unittest.TestCase):
    """Objects that somebody older is to read, or somebody newer has written."""

    def _sent(self, **targets):
        return base.Serializer(targets).serialize_entity(None, [Attachment.from_row(None, ROW)])[0]

    def test_who_is_older_gets_what_they_know(self):
        newest = {"expires_at", "agent", "device"}
        for version, missing in (
            ("1.0", {"kind", "connection_key", *newest}),
            ("1.1", {"connection_key", *newest}),
            ("1.2", newest),
            ("1.3", set()),
        ):
            sent = self._sent(Attachment=version)
            self.assertEqual(version, sent["attachd_object.version"])
            self.assertEqual(missing, set(ROW) - set(sent["attachd_object.data"]))

    def test_changes_of_what_they_do_not_know_are_not_told(self):
        changed = Attachment(id="a", kind="hold")
        sent = base.Serializer({"Attachment": "1.0"}).serialize_entity(None, changed)
        self.assertEqual(["id"], sent["attachd_object.changes"])

    def test_who_is_newer_gets_what_we_know(self):
        self.assertEqual(
            Attachment.VERSION, self._sent(Attachment="1.9")["attachd_object.version"]
        )
        self.assertEqual(Attachment.VERSION, self._sent(Volume="1.0")["attachd_object.version"])

    def test_what_an_older_one_did_not_tell_is_unset(self):
        got = base.Serializer().deserialize_entity(None, self._sent(Attachment="1.0"))
        self.assertEqual("compute-1", got.host)
        self.assertFalse(got.obj_attr_is_set("kind"))

    def test_of_what_a_newer_one_tells_the_known_is_read(self):
        sent = self._sent()
        sent["attachd_object.version"] = "1.77"
        sent["attachd_object.data"]["novelty"] = 1
        sent["attachd_object.changes"] = ["host", "novelty"]
        (got,) = base.Serializer().deserialize_entity(None, [sent])
        self.assertEqual(ROW, {name: getattr(got, name) for name in ROW})
        self.assertEqual(
            (base.Registry.obj_classes()["Attachment"][0].VERSION, {"host"}),
            (got.VERSION, got.obj_what_changed()),
        )

    def test_another_major_version_is_not_guessed_at(self):
        for version in ("2.0", "2.1"):
            sent = {**self._sent(), "attachd_object.version": version}
            with self.assertRaises(exception.IncompatibleObjectVersion):
                base.Serializer().deserialize_entity(None, sent)

    def test_an_object_that_is_not_known_at_all_is_refused(self):
        sent = {**self._sent(), "attachd_object.name": "Novelty"}
        with self.assertRaises(exception.UnsupportedObjectError):
            base.Serializer().deserialize_entity(None, sent)


class ScopeTest(unittest.TestCase):
    """Whose rows a caller sees by their ids."""

    def test_a_member_sees_those_of_the_project(self):
        self.assertEqual("p", base.scope(context.RequestContext(project_id="p")))

    def test_an_administrator_sees_those_of_everybody(self):
        self.assertIsNone(base.scope(context.RequestContext(project_id="p", is_admin=True)))
        self.assertEqual("", base.scope(context.RequestContext(project_id=None)))


class RegistryTest(unittest.TestCase):
    """Objects are found by their names."""

    def test_all_of_ours_are_known(self):
        known = base.Registry.obj_classes()
        self.assertEqual({"Attachment": [Attachment], "Volume": [Volume]}, dict(known))
