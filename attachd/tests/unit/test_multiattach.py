# SPDX-License-Identifier: Apache-2.0
"""Extra specs of volume types for multiattach: parsing and refusal."""

import unittest

from attachd import exception, multiattach
from attachd.multiattach import Mode, MultiattachSpec


class ReadTest(unittest.TestCase):
    def test_parse_without_specs_is_single_and_read_write(self):
        self.assertEqual(
            MultiattachSpec(multiattach=False, mode=Mode.RW), multiattach.parse({"other": "1"})
        )

    def test_parse_multiattach_only_for_is_true(self):
        for key in ("multiattach", "capabilities:multiattach"):
            for value, expected in (
                ("<is> True", True),
                ("<is> true", True),
                ("<is> False", False),
                ("True", False),
                (None, False),
            ):
                with self.subTest(key=key, value=value):
                    self.assertIs(expected, multiattach.parse({key: value}).multiattach)

    def test_parse_mode_ignores_case(self):
        for value in ("RO", "ro", "Ro"):
            self.assertIs(Mode.RO, multiattach.parse({"mode": value}).mode)
        self.assertIs(Mode.RW, multiattach.parse({"mode": "rw"}).mode)

    def test_parse_limits_as_numbers(self):
        specs = {"max_attachments": "16", "max_attachments_per_host": "1"}
        self.assertEqual(
            MultiattachSpec(max_attachments=16, max_attachments_per_host=1),
            multiattach.parse(specs),
        )


class CheckTest(unittest.TestCase):
    def test_check_accepts_valid_specs(self):
        for specs in (
            {},
            {"spec1": "anything"},
            {"multiattach": "<is> True", "mode": "RO", "max_attachments": "1"},
            {"multiattach": "<is> False", "mode": "rw", "max_attachments_per_host": "1000000"},
            {"mode": None},
        ):
            with self.subTest(specs):
                multiattach.check(specs)

    def test_check_refuses_invalid_spec_with_its_name(self):
        for key, value in (
            ("multiattach", "True"),
            ("multiattach", "<is> perhaps"),
            ("multiattach", ""),
            ("capabilities:multiattach", "yes"),
            ("mode", "ROX"),
            ("mode", ""),
            ("max_attachments", "0"),
            ("max_attachments", "-1"),
            ("max_attachments", "1000001"),
            ("max_attachments", "\u0661"),
            ("max_attachments_per_host", "many"),
        ):
            with (
                self.subTest(key=key, value=value),
                self.assertRaisesRegex(exception.InvalidInput, rf"{key}\b.*It has to be"),
            ):
                multiattach.check({key: value})
