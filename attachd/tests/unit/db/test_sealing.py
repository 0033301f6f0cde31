# SPDX-License-Identifier: Apache-2.0
"""Sealing and opening, and noticing that the key file has changed."""

import errno
import os
import unittest
from unittest import mock

from attachd import exception
from attachd.db import seal_keys, sealing
from attachd.tests import keys

SECRET = "f" * 32


class SealingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = keys.use(self)
        self.path = str(self.file)

    def look(self):
        """Have the process look at its file at the next use, as it does after a while."""
        sealing._ring._next_look = -1.0

    def unreadable(self, text):
        with self.assertRaises(exception.SecretUnreadable) as caught:
            sealing.unseal(text)
        self.assertEqual(503, caught.exception.code)
        return str(caught.exception)

    def test_what_was_sealed_says_so_and_can_be_opened(self):
        for text in ("", SECRET, '{"é": "日本語 🗻"}', "x" * 100_000):
            sealed = sealing.seal(text)
            self.assertTrue(sealing.is_sealed(sealed))
            self.assertTrue(sealed.startswith(f"sealed:1:{keys.ids(self.file)[0]}:"))
            self.assertEqual(text, sealing.unseal(sealed))

    def test_the_same_is_sealed_differently_each_time(self):
        self.assertNotEqual(sealing.seal(SECRET), sealing.seal(SECRET))
        self.assertNotIn(SECRET, sealing.seal(SECRET))

    def test_a_drawn_secret_fits_into_its_column(self):
        self.assertLessEqual(len(sealing.seal("x" * 64)), 255)

    def test_without_a_file_it_stays_what_it_is(self):
        keys.configure(self, None)
        self.assertEqual(SECRET, sealing.seal(SECRET))
        self.assertIsNone(sealing.keys())

    def test_what_is_not_sealed_is_what_it_says(self):
        for value in (None, SECRET, {"data": {}}, ""):
            self.assertEqual(value, sealing.opened(value))

    def test_a_missing_key_is_named_with_the_file_and_what_to_do(self):
        sealed, name = sealing.seal(SECRET), keys.ids(self.file)[0]
        keys.lose(self.file)
        said = self.unreadable(sealed)
        for part in (name, self.path, "[secrets] key_file", "Put it back", "connect anew"):
            self.assertIn(part, said)
        keys.configure(self, None)
        said = self.unreadable(sealed)
        self.assertIn(f"key {name}, and [secrets] key_file is not set", said)

    def test_what_was_damaged_is_said_to_be(self):
        sealed = sealing.seal(SECRET)
        for wrong in (keys.tampered(sealed), sealed[:-1], sealed[:20]):
            self.assertIn("damaged", self.unreadable(wrong))

    def test_nothing_shows_in_what_is_logged(self):
        sealed = sealing.Sealed(sealing.seal(SECRET), str)
        self.assertEqual("Sealed()", repr(sealed))
        self.assertEqual(SECRET, sealed.opened())
        self.assertNotIn(self.file.read_text().strip(), str(vars(sealing._ring)))

    def test_a_changed_file_is_noticed_after_a_while(self):
        one = keys.ids(self.file)[0]
        first = sealing.seal(SECRET)
        two = seal_keys.add(self.path)
        seal_keys.promote(self.path, two)
        self.look()
        second = sealing.seal(SECRET)
        self.assertTrue(second.startswith(sealing.prefix(two)))
        seal_keys.remove(self.path, one)
        self.look()
        self.assertEqual(SECRET, sealing.unseal(second))
        self.assertIn(f"key {one}", self.unreadable(first))

    def test_it_is_not_looked_at_each_time(self):
        self.enterContext(mock.patch.object(sealing, "INTERVAL", 3600.0))
        sealing.forget()
        sealing.seal(SECRET)
        with mock.patch.object(seal_keys, "signature") as look:
            for _ in range(3):
                sealing.unseal(sealing.seal(SECRET))
        look.assert_not_called()

    def test_an_unknown_key_is_looked_for_at_once(self):
        sealing.seal(SECRET)
        two = seal_keys.new()
        other = keys.folder(self) / "other.keys"
        other.write_text(f"{two}\n")
        other.chmod(0o600)
        keys.configure(self, other)
        sealed = sealing.seal(SECRET)
        keys.configure(self, self.file)
        self.assertIn("which is not in", self.unreadable(sealed))
        with self.file.open("a") as file:
            file.write(f"{two}\n")
        self.assertEqual(SECRET, sealing.unseal(sealed))

    def test_a_file_that_breaks_later_is_complained_of_once_and_the_keys_stay(self):
        sealed = sealing.seal(SECRET)
        breakages = (
            lambda: self.file.write_text("nonsense\n"),
            lambda: self.file.chmod(0o644),
            self.file.unlink,
        )
        for break_it in breakages:
            break_it()
            with self.assertLogs(sealing.LOG.logger, "WARNING") as logged:
                for _ in range(2):
                    self.look()
                    self.assertEqual(SECRET, sealing.unseal(sealed))
            (said,) = logged.output
            self.assertIn("[secrets] key_file: ", said)
            self.assertNotIn("nonsense", said)

    def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(self):
        sealing.seal(SECRET)
        two = seal_keys.add(self.path)
        seal_keys.promote(self.path, two)
        full = OSError(errno.EMFILE, "Too many open files")
        with (
            mock.patch.object(os, "open", side_effect=full),
            self.assertLogs(sealing.LOG.logger, "WARNING") as logged,
        ):
            for _ in range(2):
                self.look()
                sealing.seal(SECRET)
        (said,) = logged.output
        self.assertIn("Too many open files", said)
        self.look()
        self.assertTrue(sealing.seal(SECRET).startswith(sealing.prefix(two)))

    def test_a_file_that_was_never_in_order_keeps_a_process_from_starting(self):
        self.file.write_text("nonsense\n")
        for _ in range(2):
            with self.assertRaises(exception.ConfigurationError):
                sealing.start()

    def test_a_start_without_a_file_warns(self):
        keys.configure(self, None)
        with self.assertLogs(sealing.LOG.logger, "WARNING") as logged:
            sealing.start()
        self.assertIn("[secrets] key_file is not set", logged.output[0])
