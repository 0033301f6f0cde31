# SPDX-License-Identifier: Apache-2.0
"""Which volume types have which QoS specs."""

import unittest

from attachd import exception
from attachd.api.qos_specs import associations, handlers
from attachd.db import qos_specs
from attachd.tests import asking


class AssociationsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.one = qos_specs.create("gold", "front-end", {})["id"]
        self.kind = asking.add_type("fast")["id"]
        self.query = {"vol_type_id": self.kind}

    def listed(self):
        return associations.index(self.one)["qos_associations"]

    def test_types_get_and_lose_them(self):
        self.assertEqual([], self.listed())
        associations.associate(self.one, self.query)
        expected = {"association_type": "volume_type", "name": "fast", "id": self.kind}
        self.assertEqual([expected], self.listed())
        associations.disassociate(self.one, self.query)
        self.assertEqual([], self.listed())
        associations.associate(self.one, self.query)
        associations.disassociate_all(self.one)
        self.assertEqual([], self.listed())

    def test_what_types_have_stays_unless_forced(self):
        associations.associate(self.one, self.query)
        with self.assertRaises(exception.QosSpecsInUse):
            handlers.delete(self.one, {})
        handlers.delete(self.one, {"force": "True"})

    def test_what_the_back_end_does_not_do_is_said(self):
        other = qos_specs.create("iron", "back-end", {})["id"]
        with self.assertLogs("attachd.api.qos_specs.associations", "WARNING") as logs:
            associations.associate(other, self.query)
        self.assertIn("no backend limits anything", logs.output[0])

    def test_a_type_is_needed(self):
        for act in (associations.associate, associations.disassociate):
            with self.assertRaisesRegex(exception.BadRequest, "Volume Type id"):
                act(self.one, {})
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.one, {"vol_type_id": "gone"})

    def test_what_is_gone_is_said_to_be(self):
        acts = (
            lambda: associations.index("gone"),
            lambda: associations.associate("gone", self.query),
            lambda: associations.disassociate("gone", self.query),
            lambda: associations.disassociate_all("gone"),
        )
        for act in acts:
            self.assertRaises(exception.QosSpecsNotFound, act)
