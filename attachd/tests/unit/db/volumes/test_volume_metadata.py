# SPDX-License-Identifier: Apache-2.0
"""Metadata and image metadata of a volume."""

from attachd import exception
from attachd.db.volumes import metadata_pairs, volume_metadata, volume_store
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows


class MetadataTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.other = db_rows.add_volume()["id"]
        volume_metadata.merge(self.other, {"a": "untouched"})

    def _stored(self):
        self.assertEqual({"a": "untouched"}, volume_store.get(self.other, None)["metadata"])
        return volume_store.get(self.volume_id, None)["metadata"]

    def test_merge_keeps_other_keys(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.merge(self.volume_id, {"b": "3", "c": ""})
        self.assertEqual({"a": "1", "b": "3", "c": ""}, after)
        self.assertEqual(after, self._stored())

    def test_replace_removes_other_keys(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.replace(self.volume_id, {"b": "3", "c": "4"})
        self.assertEqual({"b": "3", "c": "4"}, after)
        self.assertEqual(after, self._stored())
        self.assertEqual({}, volume_metadata.replace(self.volume_id, {}))
        self.assertEqual({}, self._stored())

    def test_pairs_of_many_requests_are_limited_together(self):
        pairs = {f"{number}": "" for number in range(metadata_pairs.MAX_PAIRS)}
        volume_metadata.merge(self.volume_id, pairs)
        volume_metadata.merge(self.volume_id, {"0": "another value"})
        with self.assertRaisesRegex(
            exception.BadRequest, f"{self.volume_id} .* 257 metadata keys"
        ):
            volume_metadata.merge(self.volume_id, {"another": ""})
        self.assertEqual(pairs | {"0": "another value"}, self._stored())

    def test_merge_with_unexpected_pairs_is_refused(self):
        volume_metadata.merge(self.volume_id, {"a": "1"})
        for function in (volume_metadata.merge, volume_metadata.replace):
            for expected in ({}, {"a": "2"}, {"a": "1", "b": "2"}):
                with self.assertRaises(exception.PreconditionFailed):
                    function(self.volume_id, {"c": "3"}, expected)
        self.assertEqual({"a": "1"}, self._stored())
        volume_metadata.replace(self.volume_id, {"c": "3"}, {"a": "1"})
        self.assertEqual({"c": "3"}, self._stored())

    def test_merge_concurrently_with_same_expectation_succeeds_once(self):
        volume_metadata.merge(self.volume_id, {"a": "1"})

        def replace(value):
            return volume_metadata.replace(self.volume_id, {"a": value}, {"a": "1"})

        results = concurrency.run_at_once(
            *(lambda value=value: replace(value) for value in "23456")
        )
        right = [result for result in results if isinstance(result, dict)]
        wrong = [result for result in results if isinstance(result, exception.PreconditionFailed)]
        self.assertEqual((1, 4), (len(right), len(wrong)), results)
        self.assertEqual(right[0], self._stored())

    def test_delete_key_twice_raises_not_found(self):
        volume_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        volume_metadata.delete(self.volume_id, "a")
        self.assertEqual({"b": "2"}, self._stored())
        self.assertRaises(exception.NotFound, volume_metadata.delete, self.volume_id, "a")

    def test_keys_that_differ_in_case_or_accents_are_distinct(self):
        pairs = {"key": "1", "Key": "2", "kéy": "3", "🗻": "4"}
        self.assertEqual(pairs, volume_metadata.merge(self.volume_id, pairs))
        self.assertEqual(pairs, self._stored())

    def test_calls_on_deleted_volume_raise_not_found(self):
        calls = [
            (volume_metadata.merge, {"a": "1"}),
            (volume_metadata.replace, {"a": "1"}),
            (volume_metadata.delete, "a"),
        ]
        for function, argument in calls:
            self.assertRaises(exception.VolumeNotFound, function, "gone", argument)


class ImageMetadataTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.other = db_rows.add_volume()["id"]
        volume_metadata.merge_image_metadata(self.other, {"os_type": "untouched"})

    def tearDown(self):
        self.assertEqual({"os_type": "untouched"}, volume_metadata.get_image_metadata(self.other))
        super().tearDown()

    def test_merge_image_metadata_keeps_other_keys(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1", "b": "2"})
        after = volume_metadata.merge_image_metadata(self.volume_id, {"b": "3", "c": ""})
        self.assertEqual({"a": "1", "b": "3", "c": ""}, after)
        self.assertEqual(after, volume_metadata.get_image_metadata(self.volume_id))

    def test_merge_image_metadata_keeps_long_value(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "ü" * 65535})
        self.assertEqual({"a": "ü" * 65535}, volume_metadata.get_image_metadata(self.volume_id))

    def test_image_metadata_is_separate_from_metadata(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1"})
        self.assertEqual({"b": "2"}, volume_metadata.merge(self.volume_id, {"b": "2"}))
        self.assertEqual({"a": "1"}, volume_metadata.get_image_metadata(self.volume_id))

    def test_delete_image_metadata_removes_one_key(self):
        volume_metadata.merge_image_metadata(self.volume_id, {"a": "1", "b": "2"})
        volume_metadata.delete_image_metadata(self.volume_id, "a")
        self.assertEqual({"b": "2"}, volume_metadata.get_image_metadata(self.volume_id))
        with self.assertRaisesRegex(exception.NotFound, "key a"):
            volume_metadata.delete_image_metadata(self.volume_id, "a")

    def test_image_metadata_of_unknown_volume_raises_not_found(self):
        for change in (
            lambda: volume_metadata.merge_image_metadata("gone", {"a": "1"}),
            lambda: volume_metadata.delete_image_metadata("gone", "a"),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                change()
        self.assertEqual({}, volume_metadata.get_image_metadata("gone"))
