# SPDX-License-Identifier: Apache-2.0
"""attachd-manage as people type it."""

import os
from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

from attachd.db import migration
from attachd.tests import commands, databases

_MANAGE = "import sys; from attachd.cmd.manage import main; sys.exit(main())"


class ManageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.command = commands.Command.of_class(cls, "attachd-manage", "attachd.cmd.manage")

    def setUp(self):
        super().setUp()
        self.url = databases.url(self, "sqlite")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "attachd.conf"

    def _run(self, *arguments, url=None):
        self.file.write_text(f"[database]\nconnection = {url or self.url}\n", encoding="utf-8")
        return self.command.run("--config-file", self.file, *arguments)

    def _done(self, *arguments, **kwargs):
        ended = self._run(*arguments, **kwargs)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        return ended.stdout

    def test_an_empty_database_is_synced_and_then_has_the_newest_version(self):
        head = migration.head()
        self.assertEqual(f"database empty\ncode {head}\n", self._done("db", "version"))
        self.assertIn(f"has version {head} now; it had no tables", self._done("db", "sync"))
        self.assertIn(f"has version {head} already", self._done("db", "sync"))
        self.assertEqual(f"database {head}\ncode {head}\n", self._done("db", "version"))

    def test_sql_is_printed_and_nothing_done(self):
        self.assertIn("CREATE TABLE attachments", self._done("db", "sync", "--sql"))
        self.assertIn("database empty", self._done("db", "version"))
        since = self._done("db", "sync", "--sql", "--since", migration.head())
        self.assertNotIn("CREATE TABLE", since)

    def test_who_has_read_enough_is_no_accident(self):
        for words in (("db", "version"), ("db", "sync", "--sql")):
            self._done(*words)  # writes the configuration
            typed = [sys.executable, "-W", "ignore", "-c", _MANAGE, "--config-file", self.file]
            reading, writing = os.pipe()
            os.close(reading)
            with self.subTest(words), open(writing, "wb") as out:  # noqa: PTH123  a number
                ended = subprocess.run(
                    [*typed, *words], stdout=out, stderr=subprocess.PIPE, text=True, check=False
                )
                self.assertEqual((141, ""), (ended.returncode, ended.stderr))

    def test_what_cannot_be_done_is_said_in_one_line_without_the_password(self):
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

    def test_a_version_that_does_not_exist_is_refused(self):
        ended = self._run("db", "sync", "nonesuch")
        self.assertEqual(1, ended.returncode)
        self.assertIn("does not know version nonesuch", ended.stderr)

    def test_a_wrong_command_line_ends_with_2_and_the_usage(self):
        for arguments in ([], ["db"], ["db", "nonesuch"]):
            ended = self._run(*arguments)
            self.assertEqual(2, ended.returncode, ended.stderr)
            self.assertIn("usage:", ended.stderr)
