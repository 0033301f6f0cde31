# SPDX-License-Identifier: Apache-2.0
"""The commands of attachd-manage that show rows of the database."""

import argparse
import contextlib
import csv
import io
import json
import re
import unittest
from unittest import mock

from attachd.cmd import inspect
from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import members
from attachd.tests.fixtures import databases, db_rows, forked_command, lifetime, processes


class Parsed(unittest.TestCase):
    """Base of tests that run a command line in the process of the test."""

    def setUp(self):
        super().setUp()
        self.url = databases.use(self)
        self.volume = db_rows.add_volume(multiattach=True, name="data")["id"]

    def printed(self, *words):
        parser = argparse.ArgumentParser(prog="attachd-manage")
        inspect.add_commands(parser.add_subparsers())
        parsed = parser.parse_args(words)
        configuration = mock.Mock(wraps=CONF, subject=parsed, manager=CONF.manager)
        with (
            mock.patch.object(inspect, "CONF", configuration),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            parsed.action()
        return out.getvalue()


class AttachmentTest(Parsed):
    def setUp(self):
        super().setUp()
        self.one = db_rows.add_attachment(self.volume, "connecting", host="n1")["id"]
        self.hold = db_rows.add_attachment(self.volume, "held")["id"]

    def ids(self, *words):
        out = self.printed("attachment", "list", "--format", "json", *words)
        return [row["id"] for row in json.loads(out)]

    def test_attachment_list_has_all_kinds_and_no_secret(self):
        lines = self.printed("attachment", "list").splitlines()
        self.assertRegex(lines[0], r"^id +volume id +host +state +kind +changed at +error$")
        self.assertRegex(lines[1], rf"^{self.one} +{self.volume} +n1 +connecting +attachment +2")
        self.assertRegex(lines[2], rf"^{self.hold} .* - +held +hold +2")
        for form in ("json", "csv"):
            out = self.printed("attachment", "list", "--format", form)
            self.assertNotIn("5" * 32, out)
            self.assertNotIn("iqn.", out)

    def test_attachment_list_applies_filters(self):
        self.assertEqual([self.one, self.hold], self.ids())
        for words, expected in (
            (("--host", "n1"), [self.one]),
            (("--state", "held"), [self.hold]),
            (("--state", "attaching"), [self.one, self.hold]),
            (("--volume", self.volume, "--limit", "1"), [self.one]),
            (("--older-than", "1h"), []),
            (("--unchanged-for", "0s", "--older-than", "0s"), [self.one, self.hold]),
        ):
            with self.subTest(words):
                self.assertEqual(expected, self.ids(*words))

    def test_attachment_list_with_invalid_option_is_refused(self):
        for words in (
            ("--state", "lost"),
            ("--limit", "0"),
            ("--limit", "-1"),
            ("--limit", "9" * 30),
            ("--limit", "1" * 30),
            ("--older-than", "yesterday"),
            ("--format", "xml"),
        ):
            with self.subTest(words):
                with (
                    contextlib.redirect_stderr(io.StringIO()) as errors,
                    self.assertRaises(SystemExit) as ended,
                ):
                    self.printed("attachment", "list", *words)
                self.assertEqual(2, ended.exception.code)
                self.assertIn(f"argument {words[0]}", errors.getvalue())

    def test_attachment_list_in_csv_has_status(self):
        out = self.printed("attachment", "list", "--format", "csv", "--state", "connecting")
        (row,) = csv.DictReader(io.StringIO(out))
        self.assertEqual((self.one, "attaching"), (row["id"], row["status"]))

    def test_examples_of_command_reference_are_valid(self):
        reference = processes.ROOT / "doc/source/cli/attachd-manage.rst"
        if not reference.exists():
            self.skipTest("the documentation is not here, only what is installed")
        text = reference.read_text(encoding="utf-8")
        found = re.findall(r"^   \$ attachd-manage (attachment [^\[\n]*)$", text, re.MULTILINE)
        self.assertGreaterEqual(len(found), 2)
        for line in found:
            with self.subTest(line):
                self.printed(*line.split())

    def test_attachment_show_has_state_and_no_secret(self):
        self.assertRegex(self.printed("attachment", "show", self.one), r"(?m)^state +connecting$")
        shown = json.loads(self.printed("attachment", "show", self.one, "--format", "json"))
        self.assertEqual((self.one, "attaching"), (shown["id"], shown["status"]))
        self.assertFalse({"connector", "connection_info", "secret"} & shown.keys())


class OthersTest(Parsed):
    def test_volume_show_has_attachments_and_lease_holder(self):
        shown = self.printed("volume", "show", self.volume)
        self.assertRegex(shown, r"(?m)^lease_holder_name +-$")
        self.assertNotIn("volume id", shown)
        self.assertEqual(shown, self.printed("volume", "show", "data"))
        one = db_rows.add_attachment(self.volume, "connecting")["id"]
        db_rows.change_volume(self.volume, lease_holder="dead")
        shown = self.printed("volume", "show", self.volume)
        self.assertRegex(shown, r"(?m)^lease_holder_name +\(dead\)$")
        self.assertRegex(shown, rf"(?m)^{one} +{self.volume} ")
        shown_volume = json.loads(self.printed("volume", "show", self.volume, "--format", "json"))
        self.assertEqual([one], [attachment["id"] for attachment in shown_volume["attachments"]])
        self.assertEqual(
            ("data", "dead", None),
            tuple(shown_volume[name] for name in ("name", "lease_holder", "lease_holder_name")),
        )

    def test_process_list_has_leases_also_of_dead_processes(self):
        self.assertEqual("", self.printed("process", "list"))
        members.join("p", "storage-1:77")
        db_rows.change_volume(self.volume, lease_holder="dead")
        volume_id = db_rows.add_volume(lease_holder="p")["id"]
        lines = self.printed("process", "list").splitlines()
        self.assertRegex(lines[0], r"^id +name +state +started at +seen at +leases$")
        self.assertRegex(lines[1], r"^p +storage-1:77 +alive +2.* +1$")
        self.assertRegex(lines[2], r"^dead +- +dead +- +- +1$")
        (first, second) = json.loads(self.printed("process", "list", "--format", "json"))
        self.assertEqual((volume_id, self.volume), (first["volumes"], second["volumes"]))

    def test_service_list_shows_states(self):
        for host, up, error in (
            ("s@a", True, None),
            ("s@b", False, "No storage."),
            ("s@c", True, None),
        ):
            db_rows.report_service(host, up=up, error=error)
        db_rows.change_service("s@c", seen_at=models.now().replace(year=2020))
        lines = self.printed("service", "list").splitlines()
        self.assertRegex(lines[0], r"^host +state +enabled +frozen +seen at +error$")
        self.assertRegex(lines[1], r"^s@a +up +true +false +2.* -$")
        self.assertRegex(lines[2], r"^s@b +broken +true +false +2.* No storage\.$")
        self.assertRegex(lines[3], r"^s@c +down +true +false +2020")


class TypedTest(forked_command.ForkedCommandCase):
    """The commands as processes of their own."""

    def setUp(self):
        super().setUp()
        url = databases.use(self)
        self.file = lifetime.temp_dir(self) / "attachd.conf"
        self.file.write_text(f"[database]\nconnection = {url}\n", encoding="utf-8")

    def run_(self, *words):
        return self.command.run("--config-file", self.file, *words)

    def test_list_and_missing_volume_as_process(self):
        one = db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]
        done = self.run_("attachment", "list", "--state", "attached", "--host", "compute-1")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn(one, done.stdout)
        done = self.run_("volume", "show", "nonesuch")
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, r"^attachd-manage: .*nonesuch.*\n$")
