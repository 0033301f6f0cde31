# SPDX-License-Identifier: Apache-2.0
"""Records of stagings: compared, changed, stored and read."""

import dataclasses
import json
import unittest

from attachd.agent.staging import Publication, Staging

_FIRST, _SECOND = Publication("/pods/1"), Publication("/pods/2", read_only=True)


class StagingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.staging = Staging("/staging", "ext4", options="noatime")

    def test_stored_staging_is_read(self):
        staging = self.staging.with_publication(_FIRST).with_publication(_SECOND)
        stored = json.loads(json.dumps(dataclasses.asdict(staging)))
        self.assertEqual(staging, Staging.read(stored))

    def test_publications_do_not_make_a_difference(self):
        self.assertTrue(self.staging.is_like(self.staging.with_publication(_FIRST)))
        for other in ({"fs_type": None}, {"read_only": True}, {"options": ""}, {"path": "/x"}):
            self.assertFalse(self.staging.is_like(dataclasses.replace(self.staging, **other)))

    def test_use_counts_once_until_it_is_removed(self):
        staging = self.staging.with_use("a").with_use("b").with_use("a")
        self.assertEqual(("a", "b"), staging.uses)
        self.assertTrue(self.staging.is_like(staging))
        stored = json.loads(json.dumps(dataclasses.asdict(staging)))
        self.assertEqual(staging, Staging.read(stored))
        self.assertEqual(self.staging, staging.without_use("a").without_use("b"))

    def test_staging_of_earlier_release_has_no_uses(self):
        stored = dataclasses.asdict(self.staging)
        del stored["uses"], stored["mkfs"]
        self.assertEqual(self.staging, Staging.read(stored))

    def test_publication_at_same_path_is_replaced(self):
        staging = self.staging.with_publication(_FIRST).with_publication(_SECOND)
        changed = Publication(_FIRST.path, read_only=True)
        self.assertEqual((_SECOND, changed), staging.with_publication(changed).publications)

    def test_publication_is_found_until_it_is_removed(self):
        staging = self.staging.with_publication(_FIRST)
        self.assertEqual(_FIRST, staging.find(_FIRST.path))
        self.assertIsNone(staging.without_publication(_FIRST.path).find(_FIRST.path))
