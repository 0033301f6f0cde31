# SPDX-License-Identifier: Apache-2.0
"""Encryption, decryption, and changes of the key file."""

import errno
import itertools
import os
import unittest
from unittest import mock

from cryptography import fernet

from attachd import exception
from attachd.db.secrets import encryption, key_file
from attachd.tests.fixtures import key_files, lifetime

SECRET = "f" * 32
CELL = ("secret", "11111111-2222-3333-4444-555555555555")
OTHERS = (("connection_info", CELL[1]), ("secret", "22222222-2222-3333-4444-555555555555"))


def encrypt_in_former_format(file, text):
    """Return what a process of the former format stored."""
    name = key_files.key_ids(file)[0]
    token = fernet.Fernet(file.read_text().strip()).encrypt(text.encode()).decode()
    return f"{encryption.FORMER_MARK}{name}:{token}"


class EncryptionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        self.path = str(self.file)

    def check(self):
        """Have the process look at its file at the next use, as it does after a while."""
        encryption._key_ring._next_check = -1.0

    def unreadable(self, text):
        with self.assertRaises(exception.SecretUnreadable) as caught:
            encryption.decrypt(text, *CELL)
        self.assertEqual(503, caught.exception.code)
        return str(caught.exception)

    def test_encrypt_adds_prefix_and_decrypt_reverses(self):
        for text in ("", SECRET, '{"é": "日本語 🗻"}', "x" * 100_000):
            encrypted = encryption.encrypt(text, *CELL)
            self.assertTrue(encryption.is_encrypted(encrypted))
            self.assertTrue(
                encrypted.startswith(f"encrypted:2:{key_files.key_ids(self.file)[0]}:")
            )
            self.assertEqual(text, encryption.decrypt(encrypted, *CELL))

    def test_encrypt_twice_differs(self):
        self.assertNotEqual(encryption.encrypt(SECRET, *CELL), encryption.encrypt(SECRET, *CELL))
        self.assertNotIn(SECRET, encryption.encrypt(SECRET, *CELL))

    def test_encrypted_secret_fits_column(self):
        self.assertLessEqual(len(encryption.encrypt("x" * 64, *CELL)), 255)

    def test_encrypt_without_key_file_returns_text(self):
        key_files.configure(self, None)
        self.assertEqual(SECRET, encryption.encrypt(SECRET, *CELL))
        self.assertIsNone(encryption.keys())

    def test_decrypted_of_plain_text_returns_it(self):
        for value in (None, SECRET, {"data": {}}, ""):
            row = {"id": CELL[1], "secret": value}
            self.assertEqual(value, encryption.decrypted(row, "secret"))

    def test_decrypt_of_moved_value_raises_unreadable(self):
        encrypted = encryption.encrypt(SECRET, *CELL)
        for cell in OTHERS:
            with (
                self.subTest(cell),
                self.assertLogs(encryption.LOG.logger, "ERROR"),
                self.assertRaisesRegex(exception.SecretUnreadable, "moved in the database"),
            ):
                encryption.decrypt(encrypted, *cell)

    def test_decrypt_reads_former_format_and_plain_text(self):
        former = encrypt_in_former_format(self.file, SECRET)
        self.assertTrue(encryption.is_encrypted(former))
        for text in (former, SECRET):
            self.assertEqual(SECRET, encryption.decrypt(text, *CELL))

    def test_values_that_are_not_bound_are_refused_where_key_file_says_so(self):
        former = encrypt_in_former_format(self.file, SECRET)
        self.assertFalse(encryption.is_plain_text_refused())
        self.assertTrue(key_file.refuse_plain_text(self.path))
        self.check()
        self.assertTrue(encryption.is_plain_text_refused())
        for text in (former, SECRET):
            with self.assertLogs(encryption.LOG.logger, "ERROR"):
                self.assertIn("not encrypted for it", self.unreadable(text))
        self.assertEqual(SECRET, encryption.decrypt(encryption.encrypt(SECRET, *CELL), *CELL))

    def test_decrypt_with_missing_key_names_key_file_and_action(self):
        encrypted, name = encryption.encrypt(SECRET, *CELL), key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)
        said = self.unreadable(encrypted)
        for part in (name, self.path, "[secrets] key_file", "Put it back", "connect again"):
            self.assertIn(part, said)
        key_files.configure(self, None)
        said = self.unreadable(encrypted)
        self.assertIn(f"key {name}, and [secrets] key_file is not set", said)

    def test_decrypt_of_damaged_value_raises_unreadable(self):
        encrypted = encryption.encrypt(SECRET, *CELL)
        for wrong in (key_files.tamper(encrypted), encrypted[:-1], encrypted[:20]):
            self.assertIn("damaged", self.unreadable(wrong))

    def test_repr_hides_value(self):
        encrypted = encryption.Encrypted(encryption.encrypt(SECRET, *CELL), str)
        self.assertEqual("Encrypted()", repr(encrypted))
        self.assertEqual(SECRET, encrypted.opened(*CELL, encryption.ATTACHMENTS))
        self.assertNotIn(self.file.read_text().strip(), str(vars(encryption._key_ring)))

    def test_value_of_volume_is_not_one_of_attachment(self):
        column, row_id = "provider_secrets", CELL[1]
        cells = [(column, row_id, table) for table in encryption.COLUMNS]
        for own, other in itertools.permutations(cells, 2):
            encrypted = encryption.encrypt(SECRET, *own)
            self.assertEqual(SECRET, encryption.decrypt(encrypted, *own))
            kind = other[2].removesuffix("s")
            with self.assertRaisesRegex(exception.SecretUnreadable, f"of this {kind} are those"):
                encryption.decrypt(encrypted, *other)

    def test_changed_key_file_is_read_after_interval(self):
        one = key_files.key_ids(self.file)[0]
        first = encryption.encrypt(SECRET, *CELL)
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        self.check()
        second = encryption.encrypt(SECRET, *CELL)
        self.assertTrue(second.startswith(encryption.prefix(two)))
        key_file.remove(self.path, one)
        self.check()
        self.assertEqual(SECRET, encryption.decrypt(second, *CELL))
        self.assertIn(f"key {one}", self.unreadable(first))

    def test_key_file_is_not_checked_each_time(self):
        self.enterContext(mock.patch.object(encryption, "CHECK_INTERVAL", 3600.0))
        encryption.reset()
        encryption.encrypt(SECRET, *CELL)
        with mock.patch.object(key_file, "signature") as signature:
            for _ in range(3):
                encryption.decrypt(encryption.encrypt(SECRET, *CELL), *CELL)
        signature.assert_not_called()

    def test_unknown_key_is_searched_at_once(self):
        encryption.encrypt(SECRET, *CELL)
        two = key_file.generate()
        other = lifetime.temp_dir(self) / "other.keys"
        other.write_text(f"{two}\n")
        other.chmod(0o600)
        key_files.configure(self, other)
        encrypted = encryption.encrypt(SECRET, *CELL)
        key_files.configure(self, self.file)
        self.assertIn("which is not in", self.unreadable(encrypted))
        with self.file.open("a") as file:
            file.write(f"{two}\n")
        self.assertEqual(SECRET, encryption.decrypt(encrypted, *CELL))

    def test_broken_key_file_is_logged_once_and_keys_stay(self):
        encrypted = encryption.encrypt(SECRET, *CELL)
        breakages = (
            lambda: self.file.write_text("nonsense\n"),
            lambda: self.file.chmod(0o644),
            self.file.unlink,
        )
        for break_it in breakages:
            break_it()
            with self.assertLogs(encryption.LOG.logger, "WARNING") as logged:
                for _ in range(2):
                    self.check()
                    self.assertEqual(SECRET, encryption.decrypt(encrypted, *CELL))
            (said,) = logged.output
            self.assertIn("[secrets] key_file: ", said)
            self.assertNotIn("nonsense", said)

    def test_unreadable_key_file_is_read_again(self):
        encryption.encrypt(SECRET, *CELL)
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        full = OSError(errno.EMFILE, "Too many open files")
        with (
            mock.patch.object(os, "open", side_effect=full),
            self.assertLogs(encryption.LOG.logger, "WARNING") as logged,
        ):
            for _ in range(2):
                self.check()
                encryption.encrypt(SECRET, *CELL)
        (said,) = logged.output
        self.assertIn("Too many open files", said)
        self.check()
        self.assertTrue(encryption.encrypt(SECRET, *CELL).startswith(encryption.prefix(two)))

    def test_start_with_invalid_key_file_is_refused(self):
        self.file.write_text("nonsense\n")
        for _ in range(2):
            with self.assertRaises(exception.ConfigurationError):
                encryption.start()

    def test_start_without_key_file_warns(self):
        key_files.configure(self, None)
        with self.assertLogs(encryption.LOG.logger, "WARNING") as logged:
            encryption.start()
        self.assertIn("[secrets] key_file is not set", logged.output[0])
