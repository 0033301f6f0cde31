# SPDX-License-Identifier: Apache-2.0
"""Whether secrets are sealed and can be opened; test_status.py asks the command."""

import unittest

from attachd.cmd import secret_checks
from attachd.cmd.secret_checks import Code
from attachd.db.engine import session
from attachd.tests import backends, databases, keys, rows


class SecretsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        self.file = keys.use(self)

    def look(self, expected):
        found = secret_checks.secrets(None)
        self.assertEqual(expected, found.code, found.details)
        return found.details

    def add(self):
        rows.add_attachment(rows.add_volume()["id"], "attached")

    def test_what_is_sealed_is_fine(self):
        self.look(Code.SUCCESS)
        self.add()
        self.look(Code.SUCCESS)

    def test_no_keys_are_a_warning_that_says_how_to_make_some(self):
        keys.configure(self, None)
        self.add()
        details = self.look(Code.WARNING)
        self.assertIn("[secrets] key_file is not set", details)
        self.assertIn("attachd-manage key create", details)

    def test_what_was_stored_before_is_a_warning(self):
        keys.configure(self, None)
        self.add()
        keys.configure(self, self.file)
        self.assertIn("1 secrets in the database are not sealed", self.look(Code.WARNING))

    def test_a_key_that_is_missing_is_named(self):
        self.add()
        lost = keys.ids(self.file)[0]
        keys.lose(self.file)
        self.assertIn(lost, self.look(Code.FAILURE))
        keys.configure(self, None)
        self.assertIn(lost, self.look(Code.FAILURE))

    def test_a_file_that_is_not_in_order_fails_with_the_reason(self):
        self.file.chmod(0o644)
        self.assertIn("has mode 0644", self.look(Code.FAILURE))

    def test_without_a_database_the_file_is_looked_at_nevertheless(self):
        session.dispose()
        backends.override(self, "connection", "sqlite:////nowhere/x", "database")
        self.look(Code.SUCCESS)
