# SPDX-License-Identifier: Apache-2.0
"""The output format for people."""

import argparse
import io
import unittest

from attachd.cli import formatting, text_format
from attachd.tests.unit.cli.programs import Terminal


class TextTest(unittest.TestCase):
    def show(self, values, width=40, stream=None):
        stream = stream or io.StringIO()
        names, data = formatting.shown(values)
        settings = argparse.Namespace(max_width=width)
        text_format.Text().emit_one(names, data, stream, settings)
        return stream.getvalue()

    def test_fields_are_aligned_and_empty_ones_left_out(self):
        shown = self.show({"id": "a", "attached_host": "h", "error": None, "is_new": False})
        self.assertEqual("Id             a\nAttached host  h\nIs new         no\n", shown)

    def test_mapping_is_a_section_with_its_own_names(self):
        shown = self.show({"id": "a", "Connector": {"target_lun": 1, "empty": None}})
        self.assertEqual("Id  a\n\nConnector\n  target_lun  1\n", shown)

    def test_list_of_mappings_is_a_table(self):
        rows = [
            {"ID": "a", "Device": None, "Age": formatting.Age(None)},
            {"ID": "b", "Device": None, "Age": None},
        ]
        shown = self.show({"Devices": rows, "Others": []})
        self.assertIn("\nDevices\n+----+", shown)
        self.assertNotIn("Others", shown)
        self.assertNotIn("| Device", shown)

    def test_other_list_has_a_line_for_each_item(self):
        self.assertIn("\nIds\n  a\n  b\n", self.show({"ids": ["a", "b"]}))

    def test_long_values_are_wrapped_below_each_other(self):
        shown = self.show({"error": "one two three four five six seven eight"}, width=20)
        self.assertEqual("Error  one two three\n       four five six\n       seven eight\n", shown)

    def test_error_is_red_in_a_terminal(self):
        with unittest.mock.patch.dict("os.environ", {"TERM": "xterm", "NO_COLOR": ""}):
            shown = self.show({"error": "It is busy.", "id": "a"}, stream=Terminal())
        self.assertEqual("Error  \x1b[31mIt is busy.\x1b[39m\nId     a\n", shown)
