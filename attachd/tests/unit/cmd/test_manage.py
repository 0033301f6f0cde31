# SPDX-License-Identifier: Apache-2.0
"""The command attachd-manage."""

import argparse
import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

import yaml

from attachd.cmd import manage
from attachd.db import migration
from attachd.tests.fixtures import databases, forked_command, lifetime

_MANAGE = "import sys; from attachd.cmd.manage import main; sys.exit(main())"

_COMPLAINING = f"""
import sys
from attachd.db import migration

def version():
    print("printed")
    print("complained of", file=sys.stderr, flush=True)

migration.version = version
{_MANAGE}
"""


def _close_output():
    os.close(1)


class ManageTest(forked_command.ForkedCommandCase):
    def setUp(self):
        super().setUp()
        self.url = databases.create(self, "sqlite")
        self.file = lifetime.temp_dir(self) / "attachd.conf"

    def _run(self, *arguments, url=None):
        self.file.write_text(f"[database]\nconnection = {url or self.url}\n", encoding="utf-8")
        return self.command.run("--config-file", self.file, *arguments)

    def _done(self, *arguments, **kwargs):
        ended = self._run(*arguments, **kwargs)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        return ended.stdout

    def test_db_restored_believes_reports_for_some_hours_until_that_is_ended(self):
        self._done("db", "sync")
        self.assertIn("each of 0 agents", self._done("db", "restored"))
        self._done("agent", "add", "node-1")
        said = self._done("db", "restored", "--hours", "2")
        self.assertIn("each of 1 agents is accepted, and believed for 2 h", said)
        self.assertIn("node-2", self._run("db", "restored", "--end", "node-2").stderr)
        self.assertIn(
            "1 agents are believed no more", self._done("db", "restored", "--end", "node-1")
        )
        self.assertEqual(2, self._run("db", "restored", "--hours", "0").returncode)

    def test_db_sync_of_empty_database_creates_newest_version(self):
        head = migration.head()
        self.assertEqual(f"database empty\ncode {head}\n", self._done("db", "version"))
        self.assertIn(f"has version {head} now; it had no tables", self._done("db", "sync"))
        self.assertIn(f"has version {head} already", self._done("db", "sync"))
        self.assertEqual(f"database {head}\ncode {head}\n", self._done("db", "version"))

    def test_sync_to_older_version_says_that_nothing_changed(self):
        subject = argparse.Namespace(sql=False, version="001")
        output = io.StringIO()
        with (
            mock.patch.object(manage, "CONF", mock.Mock(subject=subject)),
            mock.patch.object(manage.migration, "version", return_value="002"),
            mock.patch.object(manage.migration, "upgrade"),
            mock.patch.object(manage.session, "display_url", return_value="sqlite://"),
            contextlib.redirect_stdout(output),
        ):
            manage._sync()
        self.assertIn("has version 002, newer than 001: not changed", output.getvalue())

    def test_db_sync_with_sql_prints_statements_only(self):
        self.assertIn("CREATE TABLE attachments", self._done("db", "sync", "--sql"))
        self.assertIn("database empty", self._done("db", "version"))
        since = self._done("db", "sync", "--sql", "--since", migration.head())
        self.assertNotIn("CREATE TABLE", since)

    def test_closed_output_exits_with_141(self):
        for words in (("db", "version"), ("db", "sync", "--sql")):
            self._done(*words)  # writes the configuration
            reading, writing = os.pipe()
            os.close(reading)
            with self.subTest(words), open(writing, "wb") as out:  # noqa: PTH123  a number
                ended = self._type(*words, stdout=out, stderr=subprocess.PIPE)
                self.assertEqual((141, ""), (ended.returncode, ended.stderr))

    def _type(self, *words, code=_MANAGE, **streams):
        typed = [sys.executable, "-W", "ignore", "-c", code, "--config-file", self.file]
        return subprocess.run([*typed, *words], text=True, check=False, **streams)

    def test_closed_error_output_keeps_output(self):
        self._done("db", "sync")
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as broken:  # noqa: PTH123  a number
            ended = self._type(
                *("db", "version"), code=_COMPLAINING, stdout=subprocess.PIPE, stderr=broken
            )
        self.assertEqual("printed\n", ended.stdout)
        self.assertNotIn(ended.returncode, {0, 141})

    def test_missing_output_does_not_fail_command(self):
        self._done("db", "sync")
        ended = self._type("db", "version", stderr=subprocess.PIPE, preexec_fn=_close_output)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))

    def test_database_error_is_one_line_without_password(self):
        cases = [
            ("mysql+pymysql://root:secret@127.0.0.1:1/x", "mysql+pymysql://root:***@127.0.0.1:1"),
            ("sqlite:////nonexistent/folder/x", "unable to open database file"),
            ("nonsense", "Could not parse"),
            ("nonesuch://u:secret@h/d", "nonesuch"),
        ]
        for url, text in cases:
            with self.subTest(url):
                ended = self._run("db", "sync", url=url)
                self.assertEqual((1, ""), (ended.returncode, ended.stdout))
                self.assertIn(text, ended.stderr)
                self.assertNotIn("secret", ended.stderr)
                self.assertEqual(1, ended.stderr.count("\n"), ended.stderr)

    def test_db_sync_to_unknown_version_is_refused(self):
        ended = self._run("db", "sync", "nonesuch")
        self.assertEqual(1, ended.returncode)
        self.assertIn("does not know version nonesuch", ended.stderr)

    def test_invalid_command_line_exits_with_2_and_usage(self):
        for arguments in ([], ["db"], ["db", "nonesuch"]):
            ended = self._run(*arguments)
            self.assertEqual(2, ended.returncode, ended.stderr)
            self.assertIn("usage:", ended.stderr)


class DescribeTest(forked_command.ForkedCommandCase):
    def describe(self, *arguments):
        return self.command.run("api", "describe", *arguments)

    def test_api_describe_prints_microversion_in_yaml(self):
        ended = self.describe("--microversion", "3.27", "--format", "yaml")
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        self.assertEqual("3.27", yaml.safe_load(ended.stdout)["info"]["version"])

    def test_api_describe_of_unknown_microversion_is_refused(self):
        ended = self.describe("--microversion", "3.99")
        self.assertEqual((1, ""), (ended.returncode, ended.stdout))
        self.assertIn("3.99", ended.stderr)
