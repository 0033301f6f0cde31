# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.docker_volume.new_volume import NewVolume, Options
from attachd.platforms.calls import CallError
from attachd.tests.unit.platforms.fake_storage import make_volume


def _stored(new, **values):
    return make_volume(name=new.name, metadata=new.metadata, **values)


class OptionsTest(unittest.TestCase):
    def test_options_have_defaults(self):
        options = Options.from_request({})
        self.assertEqual(("rw", "ext4"), (options.mode, options.fs_type))
        self.assertTrue(options.makes_filesystem(is_adopted=False))
        self.assertFalse(options.makes_filesystem(is_adopted=True))
        for value in (True, False):
            options = Options.from_request({"mkfs": f"{value}".lower()})
            self.assertEqual(value, options.makes_filesystem(is_adopted=value))

    def test_wrong_options_are_refused_with_reason(self):
        for given, reason in (
            ({"sise": "1"}, "There is no option sise. Options are: size, type"),
            ({"size": "1GB"}, "number of GiB"),
            ({"size": "0"}, "number of GiB"),
            ({"type": ""}, "volume type"),
            ({"mode": "wo"}, "mode has to be one of: rw, ro"),
            ({"fs": "btrfs"}, "fs has to be one of: ext2, ext3, ext4, xfs"),
            ({"mkfs": "xfs"}, "mkfs has to be one of: true, false"),
        ):
            with self.assertRaisesRegex(CallError, reason) as caught:
                Options.from_request(given)
            self.assertEqual("INVALID_ARGUMENT", caught.exception.code.name)

    def test_options_are_those_of_metadata(self):
        given = {"size": "2", "mode": "ro", "fs": "xfs", "mkfs": "false", "type": "fast"}
        options = Options.from_request(given)
        volume = make_volume(metadata={**options.metadata, "owner": "me"})
        self.assertEqual(options, Options.read(volume))


class NewVolumeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        given = {"size": "2", "type": "fast", "mode": "ro"}
        self.new = NewVolume("data", Options.from_request(given), 10)

    def test_request_has_name_size_type_and_metadata(self):
        self.assertEqual(
            {
                "name": "data",
                "size": 2,
                "volume_type": "fast",
                "metadata": {
                    "docker.volume": "true",
                    "docker.name": "data",
                    "docker.option.size": "2",
                    "docker.option.type": "fast",
                    "docker.option.mode": "ro",
                },
            },
            self.new.values(self.new.choose_gib(1), None),
        )
        self.assertEqual(10, NewVolume("data", Options({}), 10).choose_gib(1))

    def test_key_depends_on_request_and_number(self):
        other = NewVolume("other", self.new.options, 10)
        keys = {
            new.key(new.values(2, None), number) for new in (self.new, other) for number in (0, 1)
        }
        self.assertEqual(4, len(keys))
        self.assertLessEqual(max(map(len, keys)), 128)

    def test_difference_names_what_differs(self):
        for values, expected in (
            ({"size_gib": 2, "type_names": frozenset({"fast"})}, ""),
            ({"size_gib": 3, "type_names": frozenset({"fast"})}, "its size is 3 GiB"),
            ({"size_gib": 2}, "its type is none"),
        ):
            self.assertEqual(expected, self.new.find_difference(_stored(self.new, **values)))
        for given, expected in (({}, ""), ({"mode": "rw"}, "its option mode is ro")):
            requested = NewVolume("data", Options.from_request(given), 1)
            self.assertEqual(expected, requested.find_difference(_stored(self.new)))
