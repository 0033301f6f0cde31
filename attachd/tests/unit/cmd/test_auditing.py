# SPDX-License-Identifier: Apache-2.0
"""What attachd-manage audit prints, and its exit codes."""

import contextlib
import csv
import io
import json
import unittest

from attachd.cmd import auditing
from attachd.manager.audit.rules import REPAIRED, Difference, Kind
from attachd.manager.audit.runner import AuditResult


def findings(*outcomes, **more):
    differences = [
        Difference(Kind.SESSION, "here@tgt", "v" * 36, "x is logged in.", "End it.", each)
        for each in outcomes
    ]
    return AuditResult("here@tgt", differences, **more)


def printed(write, *found):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        write(found)
    return output.getvalue()


class CodesTest(unittest.TestCase):
    def test_the_worst_counts(self):
        down = findings(not_compared=["Down."])
        for found, code in (
            ([findings(), findings()], 0),
            ([findings(REPAIRED), findings("It is still so.")], 1),
            ([findings(REPAIRED), findings("")], 1),
            ([findings(""), down], 2),
            ([findings(), findings(REPAIRED, REPAIRED)], 3),
        ):
            self.assertEqual(code, auditing._code(found))


class PrintedTest(unittest.TestCase):
    def test_nothing_found_prints_nothing(self):
        self.assertEqual("", printed(auditing._write_table, findings()))

    def test_people_read_what_why_and_what_to_do(self):
        lines = printed(auditing._write_table, findings(""), findings(REPAIRED)).splitlines()
        self.assertEqual(["backend", "volume", "difference"], lines[0].split())
        self.assertEqual(["here@tgt", "v" * 36, "session"], lines[1].split())
        names = [line.split()[0] for line in lines[2:]]
        expected = ["found:", "cause:", "action:", "here@tgt", "found:", "cause:", "action:"]
        self.assertEqual([*expected, "outcome:"], names)

    def test_programs_read_the_same(self):
        (told,) = json.loads(printed(auditing._write_json, findings("", not_compared=["Down."])))
        self.assertEqual(("here@tgt", ["Down."]), (told["backend"], told["not_compared"]))
        (difference,) = told["differences"]
        self.assertEqual(
            {"kind", "volume_id", "found", "cause", "action", "outcome"}, set(difference)
        )
        self.assertEqual(("session", None), (difference["kind"], difference["outcome"]))

    def test_so_do_those_that_read_tables(self):
        out = printed(auditing._write_csv, findings(""), findings())
        (row,) = csv.DictReader(io.StringIO(out))
        self.assertEqual(
            ("here@tgt", "session", ""), (row["backend"], row["kind"], row["outcome"])
        )
        expected = "backend,kind,volume_id,found,cause,action,outcome\n"
        self.assertEqual(expected, printed(auditing._write_csv, findings()))
