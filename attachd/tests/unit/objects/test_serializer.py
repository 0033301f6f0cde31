# SPDX-License-Identifier: Apache-2.0
"""Serialization, also for other releases, and which objects a receiver knows."""

import json
from types import MappingProxyType
import unittest
from unittest import mock

from oslo_versionedobjects import exception, fields, fixture

from attachd import context, objects
from attachd.objects import (
    Attachment,
    serializer,
)
from attachd.rpc import manager_api
from attachd.tests.unit.objects.test_base import ROW


class SerializerTest(unittest.TestCase):
    """Serialization between processes."""

    def setUp(self):
        super().setUp()
        self.serializer = objects.Serializer()
        self.context = context.RequestContext(project_id="p")

    def _over_the_wire(self, entity):
        sent = json.dumps(self.serializer.serialize_entity(self.context, entity))
        return self.serializer.deserialize_entity(self.context, json.loads(sent))

    def test_serialize_keeps_all_fields(self):
        got = self._over_the_wire(Attachment.from_row(None, ROW))
        self.assertIsInstance(got, Attachment)
        self.assertEqual(ROW, {name: getattr(got, name) for name in ROW})

    def test_serialize_keeps_unset_fields_unset(self):
        (got,) = self._over_the_wire([Attachment.from_row(None, {"id": "a", "state": "attached"})])
        self.assertEqual(("a", "attached"), (got.id, got.state))
        self.assertFalse(got.obj_attr_is_set("connection_info"))

    def test_serialize_keeps_plain_values(self):
        plain = {"connector": {"host": "h", "none": None}, "list": [1, "two"]}
        self.assertEqual(plain, self._over_the_wire(plain))

    def test_deserialize_keeps_dictionary_of_client_in_another_value(self):
        primitive = self.serializer.serialize_entity(None, Attachment.from_row(None, ROW))
        for entity in ({"connection_info": primitive}, {"a": [primitive]}, [[primitive]]):
            with self.subTest(list(entity)):
                self.assertEqual(entity, self._over_the_wire(entity))
        row = {**ROW, "connector": {"host": "h", "inner": primitive}}
        (got,) = self._over_the_wire([Attachment.from_row(None, row)])
        self.assertEqual(row["connector"], got.connector)

    def test_find_reserved_key_returns_path_at_any_depth(self):
        key = "attachd_object.name"
        for value, path in (
            ({key: 1}, [key]),
            ({"a": [{"b": 1}, {"c": {key: {}}}]}, ["a", "1", "c", key]),
            ([{key: 1}], ["0", key]),
            ({"a": key, "attachd_objects": [key], "x.attachd_object.": 1}, None),
            (key, None),
        ):
            with self.subTest(value):
                self.assertEqual(path, objects.find_reserved_key(value))

    def test_serialize_writes_namespace_attachd(self):
        sent = self.serializer.serialize_entity(None, Attachment.from_row(None, ROW))
        self.assertEqual("attachd", sent["attachd_object.namespace"])


class OtherReleasesTest(unittest.TestCase):
    """An invented object of several releases."""

    def setUp(self):
        super().setUp()
        registry = fixture.VersionedObjectRegistryFixture()
        registry.setUp()
        self.addCleanup(registry.cleanUp)

        @objects.Registry.register
        class Disk(objects.AttachdObject):
            VERSION = "1.3"
            ADDED = MappingProxyType(
                {"kind": "1.1", "key": "1.2", "agent": "1.3", "device": "1.3"}
            )
            fields = {
                name: fields.StringField(nullable=True)
                for name in ("id", "host", "kind", "key", "agent", "device")
            }

        self.row = {"id": "a", "host": "h", "kind": "k", "key": None, "agent": "n", "device": "d"}
        self.disk = Disk

    def _sent(self, **targets):
        disk = self.disk.from_row(None, self.row)
        return objects.Serializer(targets).serialize_entity(None, [disk])[0]

    def test_serialize_for_older_receiver_drops_newer_fields(self):
        for version, missing in (
            ("1.0", {"kind", "key", "agent", "device"}),
            ("1.1", {"key", "agent", "device"}),
            ("1.2", {"agent", "device"}),
            ("1.3", set()),
        ):
            sent = self._sent(Disk=version)
            self.assertEqual(version, sent["attachd_object.version"])
            self.assertEqual(missing, set(self.row) - set(sent["attachd_object.data"]))

    def test_serialize_for_older_receiver_drops_changes_of_newer_fields(self):
        changed = self.disk(id="a", kind="hold")
        sent = objects.Serializer({"Disk": "1.0"}).serialize_entity(None, changed)
        self.assertEqual(["id"], sent["attachd_object.changes"])

    def test_serialize_for_newer_receiver_uses_own_version(self):
        self.assertEqual("1.3", self._sent(Disk="1.9")["attachd_object.version"])
        self.assertEqual("1.3", self._sent(Volume="1.0")["attachd_object.version"])

    def test_deserialize_from_older_sender_leaves_newer_fields_unset(self):
        got = objects.Serializer().deserialize_entity(None, self._sent(Disk="1.0"))
        self.assertEqual("h", got.host)
        self.assertFalse(got.obj_attr_is_set("kind"))

    def test_deserialize_from_newer_sender_ignores_unknown_fields(self):
        sent = self._sent()
        sent["attachd_object.version"] = "1.77"
        sent["attachd_object.data"]["novelty"] = 1
        sent["attachd_object.changes"] = ["host", "novelty"]
        (got,) = objects.Serializer().deserialize_entity(None, [sent])
        self.assertEqual(self.row, {name: getattr(got, name) for name in self.row})
        self.assertEqual(("1.3", {"host"}), (got.VERSION, got.obj_what_changed()))

    def test_deserialize_other_major_version_raises_incompatible(self):
        for version in ("2.0", "2.1"):
            sent = {**self._sent(), "attachd_object.version": version}
            with self.assertRaises(exception.IncompatibleObjectVersion):
                objects.Serializer().deserialize_entity(None, sent)

    def test_deserialize_unknown_class_raises_unsupported(self):
        sent = {**self._sent(), "attachd_object.name": "Novelty"}
        with self.assertRaises(exception.UnsupportedObjectError):
            objects.Serializer().deserialize_entity(None, sent)


class ManifestsTest(unittest.TestCase):
    def test_newest_contract_has_newest_objects(self):
        self.assertEqual(
            objects.newest_manifest(), objects.manifest_of_contract(manager_api.VERSION)
        )

    def test_contract_has_object_versions_of_its_time(self):
        manifests = {
            "1.0": {"Attachment": "1.0", "Volume": "1.0"},
            "1.1": {"Volume": "1.1"},
            "1.3": {"Attachment": "1.1"},
            "1.4": {"Attachment": "1.2", "Volume": "1.2"},
            "1.7": {"Attachment": "1.3"},
        }
        self.enterContext(mock.patch.object(serializer, "_RAISED", manifests))
        for contract, attachment, volume in (
            ("1.0", "1.0", "1.0"),
            ("1.2", "1.0", "1.1"),
            ("1.3", "1.1", "1.1"),
            ("1.4", "1.2", "1.2"),
            ("1.7", "1.3", "1.2"),
            ("1.40", "1.3", "1.2"),
        ):
            known = dict(objects.manifest_of_contract(contract))
            self.assertEqual({"Attachment": attachment, "Volume": volume}, known, contract)

    def test_added_fields_exist(self):
        for name, (kind, *_older) in objects.Registry.obj_classes().items():
            self.assertLessEqual(set(kind.ADDED), set(kind.fields), name)
            self.assertIn(kind.VERSION, {"1.0", *kind.ADDED.values()}, name)

    def test_manifest_survives_text_form(self):
        text = objects.format_manifest(objects.newest_manifest())
        self.assertRegex(text, r"^Attachment \d+\.\d+, Volume \d+\.\d+$")
        self.assertEqual(objects.newest_manifest(), objects.parse_manifest(text))
