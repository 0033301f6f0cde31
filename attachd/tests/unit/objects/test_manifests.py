# SPDX-License-Identifier: Apache-2.0
"""Which objects go with which contract."""

import unittest
from unittest import mock

from attachd.objects import base, manifests
from attachd.rpc import manager_api


class ManifestsTest(unittest.TestCase):
    def test_the_newest_contract_has_the_newest_objects(self):
        self.assertEqual(manifests.newest(), manifests.of_contract(manager_api.VERSION))

    def test_a_contract_has_what_had_come_by_then(self):
        made_up = {
            "1.0": {"Attachment": "1.0", "Volume": "1.0"},
            "1.1": {"Volume": "1.1"},
            "1.3": {"Attachment": "1.1"},
            "1.4": {"Attachment": "1.2", "Volume": "1.2"},
            "1.7": {"Attachment": "1.3"},
        }
        self.enterContext(mock.patch.object(manifests, "_RAISED", made_up))
        for contract, attachment, volume in (
            ("1.0", "1.0", "1.0"),
            ("1.2", "1.0", "1.1"),
            ("1.3", "1.1", "1.1"),
            ("1.4", "1.2", "1.2"),
            ("1.7", "1.3", "1.2"),
            ("1.40", "1.3", "1.2"),
        ):
            known = dict(manifests.of_contract(contract))
            self.assertEqual({"Attachment": attachment, "Volume": volume}, known, contract)

    def test_every_field_that_was_added_is_one(self):
        for name, (kind, *_older) in base.Registry.obj_classes().items():
            self.assertLessEqual(set(kind.ADDED), set(kind.fields), name)
            self.assertIn(kind.VERSION, {"1.0", *kind.ADDED.values()}, name)

    def test_what_is_written_can_be_read(self):
        text = manifests.to_text(manifests.newest())
        self.assertRegex(text, r"^Attachment \d+\.\d+, Volume \d+\.\d+$")
        self.assertEqual(manifests.newest(), manifests.from_text(text))
