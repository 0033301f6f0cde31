# SPDX-License-Identifier: Apache-2.0
"""Output for people and for programs."""

import argparse
import contextlib
import csv
import datetime
import io
import json
import unittest

from attachd.cmd import output

MOMENT = datetime.datetime.fromisoformat("2026-01-31T12:00:00.000001")
ROWS = [
    {"id": "a", "seen_at": MOMENT, "error": "two\nlines, \x1b[2J", "more": 1},
    {"id": "bbb", "seen_at": None, "error": None, "more": True},
]
COLUMNS = ("id", "seen_at", "error")


class OutputTest(unittest.TestCase):
    def printed(self, form, rows=ROWS):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            output.print_rows(rows, COLUMNS, form)
        return out.getvalue()

    def test_table_is_aligned_without_control_characters(self):
        expected = [
            "id   seen at              error",
            "a    2026-01-31 12:00:00  two lines,  [2J",
            "bbb  -                    -",
        ]
        self.assertEqual(expected, self.printed("table").splitlines())

    def test_output_without_rows_in_each_format(self):
        self.assertEqual("", self.printed("table", []))
        self.assertEqual([], json.loads(self.printed("json", [])))
        self.assertEqual("id,seen_at,error\n", self.printed("csv", []))

    def test_json_and_csv_keep_all_values(self):
        (first, second) = json.loads(self.printed("json"))
        self.assertEqual({**ROWS[0], "seen_at": "2026-01-31T12:00:00.000001"}, first)
        self.assertEqual(ROWS[1], second)
        (first, second) = csv.DictReader(io.StringIO(self.printed("csv")))
        expected = {"id": "bbb", "seen_at": "", "error": "", "more": "True"}
        self.assertEqual(expected, second)
        self.assertEqual("two\nlines, \x1b[2J", first["error"])

    def test_print_one_has_line_per_field(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            output.print_one(ROWS[1])
        expected = ["id       bbb", "seen_at  -", "error    -", "more     true"]
        self.assertEqual(expected, out.getvalue().splitlines())

    def test_format_option_accepts_known_formats(self):
        for add, known in (
            (output.add_format, {"table", "json", "csv"}),
            (output.add_format_of_one, {"table", "json"}),
        ):
            parser = argparse.ArgumentParser(exit_on_error=False)
            add(parser)
            self.assertEqual("table", parser.parse_args([]).format)
            for text in ("table", "json", "csv"):
                if text in known:
                    self.assertEqual(text, parser.parse_args(["--format", text]).format)
                else:
                    with self.assertRaises(argparse.ArgumentError):
                        parser.parse_args(["--format", text])
