# SPDX-License-Identifier: Apache-2.0
"""The command attachd-manage key."""

import contextlib
import io
import json
import stat
from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.cmd import keys
from attachd.db.engine import session
from attachd.db.secrets import encryption, key_file
from attachd.tests.fixtures import databases, db_rows, forked_command, key_files, lifetime


class KeyTest(forked_command.ForkedCommandCase):
    def setUp(self):
        super().setUp()
        self.url = databases.use(self)
        self.folder = lifetime.temp_dir(self)
        self.file = self.folder / "secrets.keys"
        self.configure(self.file)

    def configure(self, file):
        """Have the command, and this process, use a key file, or none."""
        key_files.configure(self, file)
        named = "" if file is None else f"[secrets]\nkey_file = {file}\n"
        text = f"[database]\nconnection = {self.url}\n{named}"
        (self.folder / "attachd.conf").write_text(text, encoding="utf-8")

    def run_(self, *arguments):
        file = self.folder / "attachd.conf"
        ended = self.command.run("--config-file", file, "key", *arguments)
        self.assertNotIn("Traceback", ended.stderr)
        if self.file.exists() and self.file.is_file():
            for key in self.file.read_text().split():
                self.assertNotIn(key, ended.stdout + ended.stderr)
        return ended

    def done(self, *arguments):
        ended = self.run_(*arguments)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        encryption.reset()
        return ended.stdout

    def refused(self, *arguments):
        ended = self.run_(*arguments)
        self.assertEqual((1, ""), (ended.returncode, ended.stdout))
        self.assertEqual(1, ended.stderr.count("\n"))
        return ended.stderr

    def add(self):
        return db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]

    def test_create_in_empty_file_adds_encrypting_key(self):
        self.file.write_text("# later\n")
        self.file.chmod(0o600)
        self.assertIn("which encrypts", self.done("create"))
        self.assertEqual(1, len(key_files.key_ids(self.file)))

    def test_key_is_created_used_replaced_and_retired(self):
        key_files.configure(self, None)
        self.add()
        key_files.configure(self, self.file)
        self.assertIn(f"{self.file} is new", self.done("create"))
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))
        (one,) = key_files.key_ids(self.file)
        self.add()
        listed = json.loads(self.done("list", "--format=json"))
        self.assertEqual(
            [
                {"key": one, "use": "encrypts", "values": 1},
                {"key": None, "use": "not encrypted", "values": 1},
            ],
            listed,
        )
        self.assertIn("attachd-manage key promote", self.done("create"))
        two = key_files.key_ids(self.file)[1]
        self.done("promote", two)
        self.assertEqual([two, one], key_files.key_ids(self.file))
        self.assertIn(f"1 values are encrypted with key {one}", self.refused("retire", one))
        self.assertIn("2 values were encrypted again.\n", self.done("rotate"))
        self.assertEqual("0 values were encrypted again.\n", self.done("rotate"))
        self.assertIn(f"2 values are encrypted with key {two}", self.refused("retire", two))
        self.assertIn(f"Key {one} is not in", self.done("retire", one))
        self.assertEqual(f"key       use       values\n{two}  encrypts  2\n", self.done("list"))
        self.assertIn(f"has no key {one}", self.refused("retire", one))

    def test_plain_text_planted_before_first_rotation_is_refused(self):
        self.assertNotIn("plain text", self.done("create"))
        row = self.add()
        planted = sa.text("UPDATE attachments SET connection_info = '{}' WHERE id = :id")
        session.write(planted.bindparams(id=row))
        with self.assertRaisesRegex(exception.SecretUnreadable, "not encrypted for it"):
            encryption.decrypted(db_rows.get_attachment(row), "connection_info")

    def test_create_with_plain_text_in_database_names_rotation(self):
        key_files.configure(self, None)
        self.add()
        key_files.configure(self, self.file)
        self.assertIn("1 values are plain text: plain text is accepted until", self.done("create"))
        self.assertFalse(key_file.read(str(self.file)).encrypted_only)

    def test_create_without_database_names_rotation(self):
        self.url = "postgresql+psycopg2://nobody@127.0.0.1:1/none"
        self.configure(self.file)
        self.assertIn("could not be read: plain text is accepted until", self.done("create"))

    def test_create_before_tables_refuses_plain_text(self):
        self.url = databases.use_without_tables(self, "sqlite")
        self.configure(self.file)
        self.done("create")
        self.assertTrue(key_file.read(str(self.file)).encrypted_only)

    def test_create_with_print_writes_no_file(self):
        (key,) = self.done("create", "--print").splitlines()
        self.assertFalse(self.file.exists())
        self.file.write_text(f"{key}\n", encoding="ascii")
        self.file.chmod(0o600)
        self.assertEqual([key_file.key_id(key)], key_files.key_ids(self.file))

    def test_complete_rotation_is_recorded_in_key_file(self):
        key_files.configure(self, None)
        self.add()
        key_files.configure(self, self.file)
        self.done("create")
        self.assertIn("values that are not encrypted are refused", self.done("rotate"))
        self.assertTrue(encryption.is_plain_text_refused())
        self.assertEqual("0 values were encrypted again.\n", self.done("rotate"))

    def test_rotation_with_read_only_key_file_says_what_to_add(self):
        self.done("create")
        refused = exception.ConfigurationError(reason="It cannot be changed.")
        with (
            mock.patch.object(key_file, "refuse_plain_text", side_effect=refused),
            contextlib.redirect_stderr(io.StringIO()) as stderr,
        ):
            keys._refuse_plain_text()
        self.assertIn("add the line '# encrypted-only' to the file", stderr.getvalue())

    def test_rotate_with_missing_key_lists_attachments_and_exits_with_1(self):
        self.done("create")
        lost = self.add()
        name = key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)
        self.assertIn(f"{name}  missing   1\n", self.done("list"))
        ended = self.run_("rotate")
        self.assertEqual(1, ended.returncode)
        self.assertIn(f"Attachment {lost} was left as it is: ", ended.stdout)
        ended = self.run_("rotate", "--format=json")
        self.assertEqual(1, ended.returncode)
        result = json.loads(ended.stdout)
        self.assertEqual((0, 0), (result["encrypted"], result["changed"]))
        self.assertEqual([lost], [item["attachment_id"] for item in result["unreadable"]])
        self.assertIn(name, result["unreadable"][0]["reason"])

    def test_commands_without_key_file_name_option(self):
        self.configure(None)
        for command in (("create",), ("promote", "x"), ("retire", "x"), ("rotate",)):
            self.assertIn("[secrets] key_file is not set", self.refused(*command))
        self.assertEqual("", self.done("list"))

    def test_commands_with_invalid_key_file_leave_it_unchanged(self):
        self.file.write_text("nonsense\n")
        self.file.chmod(0o600)
        for command in (("create",), ("promote", "x"), ("retire", "x"), ("rotate",), ("list",)):
            said = self.refused(*command)
            self.assertIn("[secrets] key_file: ", said)
        self.assertEqual("nonsense\n", self.file.read_text())
