# SPDX-License-Identifier: Apache-2.0
"""Key and value pairs of a volume."""

import unittest

from attachd import exception
from attachd.db.volumes import metadata as volume_metadata
from attachd.db.volumes import store as volumes
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows


class MetadataTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume_id = db_rows.add_volume()["id"]
        self.other = db_rows.add_volume()["id"]
        volume_metadata.merge(self.other, {"a": "untouched"})

    def _stored(self):
        self.assertEqual({"a": "untouched"}, volumes.get(self.other, None)["metadata"])
        return volumes.get(self.volume_id, None)["metadata"]

    def test_merging_keeps_what_is_not_named(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.merge(self.volume_id, {"b": "3", "c": ""})
        self.assertEqual({"a": "1", "b": "3", "c": ""}, after)
        self.assertEqual(after, self._stored())

    def test_replacing_removes_what_is_not_named(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.replace(self.volume_id, {"b": "3", "c": "4"})
        self.assertEqual({"b": "3", "c": "4"}, after)
        self.assertEqual(after, self._stored())
        self.assertEqual({}, volume_metadata.replace(self.volume_id, {}))
        self.assertEqual({}, self._stored())

    def test_what_is_expected_has_to_be_there(self):
        volume_metadata.merge(self.volume_id, {"a": "1"})
        for function in (volume_metadata.merge, volume_metadata.replace):
            for expected in ({}, {"a": "2"}, {"a": "1", "b": "2"}):
                with self.assertRaises(exception.PreconditionFailed):
                    function(self.volume_id, {"c": "3"}, expected)
        self.assertEqual({"a": "1"}, self._stored())
        volume_metadata.replace(self.volume_id, {"c": "3"}, {"a": "1"})
        self.assertEqual({"c": "3"}, self._stored())

    def test_of_two_who_expect_the_same_one_is_right(self):
        volume_metadata.merge(self.volume_id, {"a": "1"})

        def replace(value):
            return volume_metadata.replace(self.volume_id, {"a": value}, {"a": "1"})

        results = concurrency.run_at_once(
            *(lambda value=value: replace(value) for value in "23456")
        )
        right = [each for each in results if isinstance(each, dict)]
        wrong = [each for each in results if isinstance(each, exception.PreconditionFailed)]
        self.assertEqual((1, 4), (len(right), len(wrong)), results)
        self.assertEqual(right[0], self._stored())

    def test_one_pair_can_be_removed_once(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        volume_metadata.delete(self.volume_id, "a")
        self.assertEqual({"b": "2"}, self._stored())
        self.assertRaises(exception.NotFound, volume_metadata.delete, self.volume_id, "a")

    def test_keys_that_differ_only_in_case_or_accents_are_two(self):
        pairs = {"key": "1", "Key": "2", "kéy": "3", "🗻": "4"}
        self.assertEqual(pairs, volume_metadata.merge(self.volume_id, pairs))
        self.assertEqual(pairs, self._stored())

    def test_a_volume_that_is_gone_is_said_to_be(self):
        calls = [
            (volume_metadata.merge, {"a": "1"}),
            (volume_metadata.replace, {"a": "1"}),
            (volume_metadata.delete, "a"),
        ]
        for function, argument in calls:
            self.assertRaises(exception.VolumeNotFound, function, "gone", argument)


class ImageMetadataTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume_id = db_rows.add_volume()["id"]
        self.other = db_rows.add_volume()["id"]
        volume_metadata.merge_image_metadata(self.other, {"os_type": "untouched"})

    def tearDown(self):
        self.assertEqual({"os_type": "untouched"}, volume_metadata.get_image_metadata(self.other))
        super().tearDown()

    def test_merging_keeps_what_is_not_named(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.merge_image_metadata(self.volume_id, {"b": "3", "c": ""})
        self.assertEqual({"a": "1", "b": "3", "c": ""}, after)
        self.assertEqual(after, volume_metadata.get_image_metadata(self.volume_id))

    def test_a_long_value_is_kept_whole(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "ü" * 65535})
        self.assertEqual({"a": "ü" * 65535}, volume_metadata.get_image_metadata(self.volume_id))

    def test_it_is_apart_from_the_users_metadata(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1"})
        self.assertEqual({"b": "2"}, volume_metadata.merge(self.volume_id, {"b": "2"}))
        self.assertEqual({"a": "1"}, volume_metadata.get_image_metadata(self.volume_id))

    def test_one_pair_is_removed(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1", "b": "2"})
        volume_metadata.delete_image_metadata(self.volume_id, "a")
        self.assertEqual({"b": "2"}, volume_metadata.get_image_metadata(self.volume_id))
        with self.assertRaisesRegex(exception.NotFound, "key a"):
            volume_metadata.delete_image_metadata(self.volume_id, "a")

    def test_an_unknown_volume_is_told(self):
        for change in (
            lambda: volume_metadata.merge_image_metadata("gone", {"a": "1"}),
            lambda: volume_metadata.delete_image_metadata("gone", "a"),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                change()
        self.assertEqual({}, volume_metadata.get_image_metadata("gone"))
