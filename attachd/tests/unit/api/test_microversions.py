# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of microversions and of their negotiation."""

import unittest

from attachd import exception
from attachd.api import microversions as mv


class TableTest(unittest.TestCase):
    def test_table_is_complete_from_3_0_to_3_71(self):
        self.assertEqual([(3, minor) for minor in range(72)], list(mv.versions()))

    def test_each_version_has_name_and_sentence(self):
        names = {value: name for name, value in vars(mv).items() if isinstance(value, mv.Version)}
        for version, sentence in mv.versions().items():
            self.assertRegex(names[version], "^[A-Z][A-Z0-9_]+$")
            self.assertTrue(sentence.endswith("."), version)

    def test_names_match_version_of_feature(self):
        came = {
            mv.NEW_ATTACH: "3.27",
            mv.RESOURCE_FILTER: "3.31",
            mv.LIKE_FILTER: "3.34",
            mv.VOLUME_EXTEND_INUSE: "3.42",
            mv.NEW_ATTACH_COMPLETION: "3.44",
            mv.ATTACHMENT_CREATE_MODE_ARG: "3.54",
            mv.PROJECT_ID_OPTIONAL_IN_URL: "3.67",
            mv.LATEST: "3.71",
        }
        self.assertEqual(list(came.values()), [str(version) for version in came])

    def test_versions_compare_as_numbers(self):
        self.assertLess(mv.Version(3, 9), mv.Version(3, 10))


class NegotiationTest(unittest.TestCase):
    def test_header_sets_version(self):
        cases = {
            None: ((3, 0), None),
            "volume 3.27": ((3, 27), None),
            "Volume  3.27 ": ((3, 27), None),
            "volume latest": ((3, 71), None),
            "compute 2.1,volume 3.44": ((3, 44), None),
            "volume 3.71, attachd 1.0": ((3, 71), (1, 0)),
            "attachd latest": ((3, 0), (1, 1)),
            "volume 3.27, volume 3.44": ((3, 27), None),
            "volume 3.27,": ((3, 27), None),
        }
        for header, expected in cases.items():
            with self.subTest(header):
                self.assertEqual(expected, tuple(mv.negotiate(header)))

    def test_unknown_version_is_not_acceptable(self):
        for header in ("volume 3.72", "volume 4.0", "volume 2.0", "volume 3.1,attachd 1.2"):
            with (
                self.subTest(header),
                self.assertRaisesRegex(
                    exception.NotAcceptable, "is not supported by the API. Minimum is"
                ),
            ):
                mv.negotiate(header)

    def test_malformed_version_returns_400(self):
        headers = (
            "",
            "3",
            "3.27",
            "volume",
            "volume 3",
            "volume abc",
            "volume 3.00",
            "volume 03.1",
            "volume 3.1.1",
            "volume -3.1",
            "volume \u0663.\u0661",
            "compute 2.1",
            "volume 3.1 3.2",
            ",",
            "volume 3.9999999999999",
            "volume 3.27, attachd",
            "volumes 3.27",
        )
        for header in headers:
            with self.subTest(header), self.assertRaises(exception.BadRequest):
                mv.negotiate(header)

    def test_response_has_requested_versions(self):
        self.assertEqual("volume 3.71", mv.negotiate("volume latest").header())
        self.assertEqual(
            "volume 3.44, attachd 1.0", mv.negotiate("attachd 1.0,volume 3.44").header()
        )
