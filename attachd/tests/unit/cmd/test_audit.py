# SPDX-License-Identifier: Apache-2.0
"""The command attachd-manage audit."""

import contextlib
import csv
import io
import json
import unittest

from attachd.cmd import audit
from attachd.db import migration
from attachd.manager.audit.rules import REPAIRED, Difference, Kind
from attachd.manager.audit.runner import AuditResult
from attachd.tests.fixtures import databases, fake_nova, forked_command, lifetime

CLEAN = "1 back end, 0 exports compared, no difference\n"
"""What an audit without differences prints."""


class CommandCase(forked_command.ForkedCommandCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        databases.use_without_tables(self, "sqlite")
        migration.upgrade()
        url = databases.CONF.database.connection
        self.file = folder / "attachd.conf"
        self.configuration = (
            f"[DEFAULT]\nstate_path = {folder}\nenabled_backends = files\n"
            f"[database]\nconnection = {url}\n"
            "[files]\ndriver = file\nfile_loop_devices = never\n"
        )
        self.volumes = folder / "files" / "volumes"

    def run_audit(self, *arguments, more=""):
        self.file.write_text(self.configuration + more, encoding="utf-8")
        done = self.command.run("--config-file", self.file, "audit", *arguments)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr


class CommandTest(CommandCase):
    def test_audit_of_empty_deployment_is_clean_and_stray_file_is_reported(self):
        self.assertEqual((0, CLEAN, ""), self.run_audit())
        (self.volumes / "stray").write_bytes(b"data")
        code, out, _error = self.run_audit("--repair", "--backend", "files", "--format", "json")
        ((difference,),) = [load["differences"] for load in json.loads(out)]
        self.assertEqual((1, "data-without-volume"), (code, difference["kind"]))
        self.assertEqual(b"data", (self.volumes / "stray").read_bytes())

    def test_audit_that_cannot_compare_exits_with_2(self):
        for arguments, more, text in (
            (["--backend", "other"], "", "not in enabled_backends: other"),
            ([], "[DEFAULT]\nenabled_backends =\n", "nothing to compare"),
            ([], "[files]\nfile_folder = /proc/nowhere\n", "is down"),
            ([], "[database]\nconnection = sqlite:////nonexistent/x\n", "unable to open"),
        ):
            code, out, error = self.run_audit(*arguments, more=more)
            self.assertEqual((2, ""), (code, out), error)
            self.assertIn(text, error)

    def test_audit_of_fake_driver_says_that_nothing_was_compared(self):
        more = "[DEFAULT]\nenabled_backends = files,memory\n[memory]\ndriver = fake\n"
        code, out, error = self.run_audit("--format", "json", more=more)
        self.assertEqual(2, code)
        files, memory = json.loads(out)
        self.assertEqual(([], []), (files["differences"], files["not_compared"]))
        (reason,) = memory["not_compared"]
        self.assertIn("Backend memory: not compared, because", reason)
        self.assertIn(reason, error)
        self.assertEqual((0, CLEAN, ""), self.run_audit("--backend", "files", more=more))


class ComputeTest(CommandCase):
    def setUp(self):
        super().setUp()
        self.nova = fake_nova.FakeNova(self)
        self.more = f"[nova]\nendpoint_override = {self.nova.url}\nauth_type = none\n"

    def test_audit_with_compute_reports_it_beside_backends(self):
        out = self.run_audit("--compute", "--repair", "--format", "json", more=self.more)[1]
        self.assertEqual(
            ["files", "compute"],
            [result["backend"].rpartition("@")[2] for result in json.loads(out)],
        )
        self.assertEqual((0, CLEAN, ""), self.run_audit("--compute=all", more=self.more))
        self.assertEqual((0, CLEAN, ""), self.run_audit(more=self.more))
        self.assertEqual(2, len(self.nova.requests))

    def test_audit_with_compute_down_compares_the_rest(self):
        self.assertEqual((0, CLEAN, ""), self.run_audit())
        (self.volumes / "stray").write_bytes(b"data")
        self.nova.close()
        code, out, error = self.run_audit("--compute", more=self.more)
        self.assertEqual(2, code)
        self.assertIn("data-without-volume", out)
        self.assertIn("Compute cannot be asked", error)

    def test_audit_with_compute_without_credentials_exits_with_2(self):
        code, out, error = self.run_audit("--compute")
        self.assertEqual((2, ""), (code, out))
        self.assertIn("[nova] has no auth_type", error)


def findings(*outcomes, **more):
    differences = [
        Difference(Kind.SESSION, "here@tgt", "v" * 36, "x is logged in.", "End it.", outcome)
        for outcome in outcomes
    ]
    return AuditResult("here@tgt", differences, **more)


def printed(write, *found):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        write(found)
    return output.getvalue()


class SummaryTest(unittest.TestCase):
    def test_last_line_counts_what_was_compared(self):
        for found, expected in (
            ([findings(exports=0)], "1 back end, 0 exports compared, no difference"),
            (
                [findings(exports=3), findings("", REPAIRED, exports=2)],
                "2 back ends, 5 exports compared, 2 differences, 1 repaired",
            ),
            (
                [findings(exports=1), findings(not_compared=["Down."])],
                "1 back end, 1 export compared, no difference, not all could be compared",
            ),
            ([findings(not_compared=["Down."])], ""),
        ):
            self.assertEqual(expected, audit._summarize(found))


class CodesTest(unittest.TestCase):
    def test_exit_code_is_that_of_worst_result(self):
        down = findings(not_compared=["Down."])
        for found, code in (
            ([findings(), findings()], 0),
            ([findings(REPAIRED), findings("It is still so.")], 1),
            ([findings(REPAIRED), findings("")], 1),
            ([findings(""), down], 2),
            ([findings(), findings(REPAIRED, REPAIRED)], 3),
        ):
            self.assertEqual(code, audit._code(found))


class PrintedTest(unittest.TestCase):
    def test_table_without_differences_is_empty(self):
        self.assertEqual("", printed(audit._write_table, findings()))

    def test_table_shows_difference_cause_action_and_outcome(self):
        lines = printed(audit._write_table, findings(""), findings(REPAIRED)).splitlines()
        self.assertEqual(["backend", "volume", "difference"], lines[0].split())
        self.assertEqual(["here@tgt", "v" * 36, "session"], lines[1].split())
        names = [line.split()[0] for line in lines[2:]]
        expected = ["found:", "cause:", "action:", "here@tgt", "found:", "cause:", "action:"]
        self.assertEqual([*expected, "outcome:"], names)

    def test_json_has_same_fields(self):
        (result,) = json.loads(printed(audit._write_json, findings("", not_compared=["Down."])))
        self.assertEqual(("here@tgt", ["Down."]), (result["backend"], result["not_compared"]))
        (difference,) = result["differences"]
        self.assertEqual(
            {"kind", "volume_id", "found", "cause", "action", "outcome"}, set(difference)
        )
        self.assertEqual(("session", None), (difference["kind"], difference["outcome"]))

    def test_csv_has_same_fields(self):
        out = printed(audit._write_csv, findings(""), findings())
        (row,) = csv.DictReader(io.StringIO(out))
        self.assertEqual(
            ("here@tgt", "session", ""), (row["backend"], row["kind"], row["outcome"])
        )
        expected = "backend,kind,volume_id,found,cause,action,outcome\n"
        self.assertEqual(expected, printed(audit._write_csv, findings()))
