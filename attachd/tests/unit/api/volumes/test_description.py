# SPDX-License-Identifier: Apache-2.0
"""What becomes of a volume's name, description and metadata."""

import unittest

from attachd.api.volumes import description
from attachd.objects import Volume
from attachd.tests import asking, hearing, rows


class DescriptionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.heard = hearing.use(self)
        self.volume = rows.add_volume(name="disk")["id"]

    def changed(self, **wanted):
        description.change(Volume.get(asking.context(), self.volume), wanted)
        volume = Volume.get(asking.context(), self.volume)
        return volume.name, volume.description, volume.metadata

    def test_what_is_not_named_stays(self):
        self.assertEqual(("disk", "mine", {}), self.changed(description="mine"))
        self.assertEqual(("disk", "mine", {"a": "b"}), self.changed(metadata={"a": "b"}))
        self.assertEqual(("new", "mine", {"a": "b"}), self.changed(name="new"))

    def test_it_is_told(self):
        self.changed(name="new")
        told = [each["payload"]["display_name"] for each in self.heard.messages()]
        self.assertEqual(["disk", "new"], told)
