# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on existing objects that become volumes; see test_drivers.py.

The objects are former volumes, so that a test backend needs nothing for it; with ``add_object()``
and ``use_object()`` of its own it shows more.
"""

import hashlib
import json
import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.contract.driving import GIB, MIB, ZEROS, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class ManageTest(DriverCase):
    """list_manageable, get_manageable, manage, unmanage."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.ManageExisting)

    def released(self, data=b"") -> tuple[str, abilities.ManageableObject]:
        """Make an object of a volume; return the volume's id, and the object."""
        volume = self.volume()
        if data:
            export = self.export()
            self.host().write(self.granted(volume, export), MIB, data)
            self.revoked(volume, export)
        self.driver.unmanage(volume)
        return volume.id, self.found(volume.id)

    def found(self, name) -> abilities.ManageableObject:
        """Find the object whose reference contains a text."""
        listed = self.driver.list_manageable()
        (found,) = [item for item in listed if name in json.dumps(dict(item.reference))]
        return found

    def managed(self, reference, size_gib=1) -> base.VolumeRef:
        """Make a volume of an object, removed with the test."""
        asked = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        self.addCleanup(self.driver.delete, asked)
        notes = self.driver.manage(asked, reference)
        return base.VolumeRef(asked.id, size_gib, json.loads(json.dumps(notes)))

    def test_unmanaged_volume_can_be_managed_with_its_data(self):
        data = secrets.token_bytes(MIB)
        former, item = self.released(data)
        self.assertEqual((GIB, "", ""), (item.size_bytes, item.refusal, item.volume_id))
        self.assertNotIn(former, self.driver.list_volumes())
        volume = self.managed(item.reference)
        self.assertEqual({volume.id: GIB}, dict(self.driver.list_volumes()))
        info = self.granted(volume, self.export())
        read = self.host().read(info, MIB, len(data))
        self.assertEqual(hashlib.sha256(data).digest(), hashlib.sha256(read).digest())

    def test_managed_volume_is_like_any_other(self):
        _former, item = self.released()
        volume = self.managed(item.reference)
        self.driver.extend(volume, 2, [])
        self.assertEqual(volume.provider, self.driver.create(base.VolumeRef(volume.id, 2)))
        self.driver.delete(volume)
        self.assertEqual([], list(self.driver.list_manageable()))
        self.assertEqual([], self.backend.orphans())

    def test_volume_is_listed_and_cannot_be_managed(self):
        volume = self.volume()
        item = next(item for item in self.driver.list_manageable() if item.volume_id == volume.id)
        self.assertNotEqual("", item.refusal)
        self.assert_refused(self.managed, item.reference, final=True)
        self.assertIn(volume.id, self.driver.list_volumes())

    def test_get_manageable_finds_listed_object(self):
        _former, item = self.released()
        copied = json.loads(json.dumps(dict(item.reference)))
        self.assertEqual(item, self.driver.get_manageable(copied))
        self.managed(item.reference)

    def test_get_manageable_refuses_references_without_object(self):
        former, item = self.released()
        self.managed(item.reference)
        (key,) = item.reference
        missing = item.reference[key].replace(former, f"{uuid.uuid4()}")
        for reference in ({}, {"unknown": "key"}, {key: missing}, {key: ""}, {key: "../etc"}):
            self.assertRaises(exception.InvalidInput, self.driver.get_manageable, reference)

    def test_manage_repeated_changes_nothing(self):
        _former, item = self.released()
        volume = self.managed(item.reference)
        again = self.driver.manage(base.VolumeRef(volume.id, 1), item.reference)
        self.assertEqual(volume.provider, again)

    def test_manage_of_missing_object_is_refused_finally(self):
        _former, item = self.released()
        self.managed(item.reference)
        self.assert_refused(self.managed, item.reference, final=True)

    def test_unmanage_repeated_or_of_unknown_volume_succeeds(self):
        former, item = self.released()
        for volume_id in (former, f"{uuid.uuid4()}"):
            self.driver.unmanage(base.VolumeRef(volume_id, 1))
        self.assertEqual([item], list(self.driver.list_manageable()))
        self.managed(item.reference)

    def test_unmanage_of_exported_volume_is_refused_finally(self):
        volume, export = self.volume(), self.export()
        info = self.granted(volume, export)
        self.assert_refused(self.driver.unmanage, volume, final=True)
        self.assertEqual(info, self.driver.grant(volume, export))

    def test_object_is_extended_to_whole_gib(self):
        reference = self.backend.add_object(GIB + 8 * MIB)
        if reference is None:
            self.skipTest("the test backend adds no objects")
        item = self.driver.get_manageable(reference)
        self.assertEqual(GIB + 8 * MIB, item.size_bytes)
        volume = self.managed(reference, 2)
        self.assertEqual({volume.id: 2 * GIB}, dict(self.driver.list_volumes()))
        info = self.granted(volume, self.export())
        self.assertEqual(ZEROS, self.host().read(info, 2 * GIB - len(ZEROS), len(ZEROS)))

    def test_object_in_use_is_refused_until_it_is_free(self):
        _former, item = self.released()
        using = self.backend.use_object(item.reference)
        if using is None:
            self.addCleanup(self.managed, item.reference)
            self.skipTest("the test backend uses no objects")
        with using:
            self.assertNotEqual("", self.driver.get_manageable(item.reference).refusal)
            self.assert_refused(self.managed, item.reference, final=True)
        self.managed(item.reference)
