# SPDX-License-Identifier: Apache-2.0
"""Encryption, decryption, and changes of the key file."""

import errno
import os
import unittest
from unittest import mock

from attachd import exception
from attachd.db.secrets import encryption, key_file
from attachd.tests.fixtures import key_files, lifetime

SECRET = "f" * 32


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
            encryption.decrypt(text)
        self.assertEqual(503, caught.exception.code)
        return str(caught.exception)

    def test_encrypt_adds_prefix_and_decrypt_reverses(self):
        for text in ("", SECRET, '{"é": "日本語 🗻"}', "x" * 100_000):
            encrypted = encryption.encrypt(text)
            self.assertTrue(encryption.is_encrypted(encrypted))
            self.assertTrue(
                encrypted.startswith(f"encrypted:1:{key_files.key_ids(self.file)[0]}:")
            )
            self.assertEqual(text, encryption.decrypt(encrypted))

    def test_encrypt_twice_differs(self):
        self.assertNotEqual(encryption.encrypt(SECRET), encryption.encrypt(SECRET))
        self.assertNotIn(SECRET, encryption.encrypt(SECRET))

    def test_encrypted_secret_fits_column(self):
        self.assertLessEqual(len(encryption.encrypt("x" * 64)), 255)

    def test_encrypt_without_key_file_returns_text(self):
        key_files.configure(self, None)
        self.assertEqual(SECRET, encryption.encrypt(SECRET))
        self.assertIsNone(encryption.keys())

    def test_decrypted_of_plain_text_returns_it(self):
        for value in (None, SECRET, {"data": {}}, ""):
            self.assertEqual(value, encryption.decrypted(value))

    def test_decrypt_with_missing_key_names_key_file_and_action(self):
        encrypted, name = encryption.encrypt(SECRET), key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)
        said = self.unreadable(encrypted)
        for part in (name, self.path, "[secrets] key_file", "Put it back", "connect again"):
            self.assertIn(part, said)
        key_files.configure(self, None)
        said = self.unreadable(encrypted)
        self.assertIn(f"key {name}, and [secrets] key_file is not set", said)

    def test_decrypt_of_damaged_value_raises_unreadable(self):
        encrypted = encryption.encrypt(SECRET)
        for wrong in (key_files.tamper(encrypted), encrypted[:-1], encrypted[:20]):
            self.assertIn("damaged", self.unreadable(wrong))

    def test_repr_hides_value(self):
        encrypted = encryption.Encrypted(encryption.encrypt(SECRET), str)
        self.assertEqual("Encrypted()", repr(encrypted))
        self.assertEqual(SECRET, encrypted.opened())
        self.assertNotIn(self.file.read_text().strip(), str(vars(encryption._key_ring)))

    def test_changed_key_file_is_read_after_interval(self):
        one = key_files.key_ids(self.file)[0]
        first = encryption.encrypt(SECRET)
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        self.check()
        second = encryption.encrypt(SECRET)
        self.assertTrue(second.startswith(encryption.prefix(two)))
        key_file.remove(self.path, one)
        self.check()
        self.assertEqual(SECRET, encryption.decrypt(second))
        self.assertIn(f"key {one}", self.unreadable(first))

    def test_key_file_is_not_checked_each_time(self):
        self.enterContext(mock.patch.object(encryption, "CHECK_INTERVAL", 3600.0))
        encryption.reset()
        encryption.encrypt(SECRET)
        with mock.patch.object(key_file, "signature") as signature:
            for _ in range(3):
                encryption.decrypt(encryption.encrypt(SECRET))
        signature.assert_not_called()

    def test_unknown_key_is_searched_at_once(self):
        encryption.encrypt(SECRET)
        two = key_file.generate()
        other = lifetime.temp_dir(self) / "other.keys"
        other.write_text(f"{two}\n")
        other.chmod(0o600)
        key_files.configure(self, other)
        encrypted = encryption.encrypt(SECRET)
        key_files.configure(self, self.file)
        self.assertIn("which is not in", self.unreadable(encrypted))
        with self.file.open("a") as file:
            file.write(f"{two}\n")
        self.assertEqual(SECRET, encryption.decrypt(encrypted))

    def test_broken_key_file_is_logged_once_and_keys_stay(self):
        encrypted = encryption.encrypt(SECRET)
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
                    self.assertEqual(SECRET, encryption.decrypt(encrypted))
            (said,) = logged.output
            self.assertIn("[secrets] key_file: ", said)
            self.assertNotIn("nonsense", said)

    def test_unreadable_key_file_is_read_again(self):
        encryption.encrypt(SECRET)
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        full = OSError(errno.EMFILE, "Too many open files")
        with (
            mock.patch.object(os, "open", side_effect=full),
            self.assertLogs(encryption.LOG.logger, "WARNING") as logged,
        ):
            for _ in range(2):
                self.check()
                encryption.encrypt(SECRET)
        (said,) = logged.output
        self.assertIn("Too many open files", said)
        self.check()
        self.assertTrue(encryption.encrypt(SECRET).startswith(encryption.prefix(two)))

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
