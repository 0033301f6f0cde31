# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of the objects: for whoever changes one, and has to give it a new VERSION."""

import unittest

from oslo_versionedobjects import fixture

from attachd.objects import base

# A change of fields gets a new VERSION, a line in the class's history, and its fingerprint here.
FINGERPRINTS = {
    "Attachment": "1.0-b2e0e943d073bab3125d40e67a1109d2",
    "Volume": "1.0-f76de25306aaa5b1d59b9494b9b36759",
}


class VersionsTest(unittest.TestCase):
    """Processes of two releases understand each other only if a version means one thing."""

    def test_no_object_changes_without_a_new_version(self):
        checker = fixture.ObjectVersionChecker(base.Registry.obj_classes())
        expected, actual = checker.test_hashes(FINGERPRINTS)
        self.assertEqual(expected, actual)

    def test_a_changed_field_would_be_found(self):
        class Changed(base.Registry.obj_classes()["Volume"][0]):
            fields = {"size_gib": base.JsonField()}

        checker = fixture.ObjectVersionChecker({"Volume": [Changed]})
        self.assertNotEqual(FINGERPRINTS["Volume"], checker.get_hashes()["Volume"])
