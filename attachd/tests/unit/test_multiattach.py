# SPDX-License-Identifier: Apache-2.0
"""What types say of attaching: what is read of their extra specs, and what is refused."""

import unittest

from attachd import exception, multiattach
from attachd.multiattach import Mode, MultiattachSpec


class ReadTest(unittest.TestCase):
    def test_a_type_that_says_nothing_is_attached_once_and_written(self):
        self.assertEqual(
            MultiattachSpec(multiattach=False, mode=Mode.RW), multiattach.parse({"other": "1"})
        )

    def test_only_a_true_is_is_multiattach(self):
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

    def test_a_mode_is_read_in_any_case(self):
        for value in ("RO", "ro", "Ro"):
            self.assertIs(Mode.RO, multiattach.parse({"mode": value}).mode)
        self.assertIs(Mode.RW, multiattach.parse({"mode": "rw"}).mode)

    def test_limits_are_numbers(self):
        specs = {"max_attachments": "16", "max_attachments_per_host": "1"}
        self.assertEqual(MultiattachSpec(most=16, most_per_host=1), multiattach.parse(specs))


class CheckTest(unittest.TestCase):
    def test_what_can_be_meant_passes(self):
        for specs in (
            {},
            {"spec1": "anything"},
            {"multiattach": "<is> True", "mode": "RO", "max_attachments": "1"},
            {"multiattach": "<is> False", "mode": "rw", "max_attachments_per_host": "1000000"},
            {"mode": None},
        ):
            with self.subTest(specs):
                multiattach.check(specs)

    def test_what_cannot_is_refused_by_its_name(self):
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
