# SPDX-License-Identifier: Apache-2.0
"""Key files: valid and invalid content, and changes."""

import contextlib
import os
import stat
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db.secrets import key_file
from attachd.tests.fixtures import key_files, lifetime


class KeyFileTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = lifetime.temp_dir(self) / "secrets.keys"
        self.path = str(self.file)

    def write(self, text, mode=0o600):
        self.file.unlink(missing_ok=True)
        self.file.write_text(text, encoding="utf-8")
        self.file.chmod(mode)

    def refused(self, path=None):
        with self.assertRaises(exception.ConfigurationError) as caught:
            key_file.read(path or self.path)
        said = str(caught.exception)
        self.assertRegex(said, r"^\[secrets\] key_file: ")
        return said


class ReadTest(KeyFileTest):
    def test_first_key_encrypts_and_all_decrypt(self):
        one, two = key_file.generate(), key_file.generate()
        self.write(f"# made in May\n\n  {one}  \n{two}\n", mode=0o640)
        found = key_file.read(self.path)
        self.assertEqual(key_file.key_id(one), found.first)
        self.assertEqual([key_file.key_id(item) for item in (one, two)], list(found.by_id))

    def test_key_id_does_not_reveal_key(self):
        key = key_file.generate()
        self.assertRegex(key_file.key_id(key), "^[0-9a-f]{8}$")
        self.assertNotIn(key_file.key_id(key), key)

    def test_read_of_file_accessible_to_others_is_refused(self):
        for mode in (0o644, 0o604, 0o602, 0o601):
            self.write(key_file.generate(), mode)
            said = self.refused()
            self.assertIn(f"has mode {mode:04o}", said)
        for mode in (0o600, 0o400, 0o440, 0o660):
            self.write(key_file.generate(), mode)
            key_file.read(self.path)

    def test_read_of_invalid_file_names_reason(self):
        self.assertIn("cannot be read: No such file", self.refused())
        self.assertIn("is not an absolute path", self.refused("secrets.keys"))
        self.assertIn("is not a regular file", self.refused(str(self.file.parent)))
        os.mkfifo(self.file, 0o600)
        self.assertIn("is not a regular file", self.refused())
        for nothing in ("", "\n \n", "# later\n"):
            self.write(nothing)
            self.assertIn("has no key", self.refused())
        self.write("x" * 70_000)
        self.assertIn("is longer than 65536 bytes", self.refused())

    def test_read_of_invalid_line_names_number_without_content(self):
        key = key_file.generate()
        for wrong in (key[:-2], f"{key}x", "passw0rd", f"{key} {key}", "ключ", "\0"):
            self.write(f"{key}\n\n{wrong}\n")
            said = self.refused()
            self.assertIn("line 3 is no key", said)
            self.assertNotIn(wrong, said)

    def test_read_of_duplicate_key_is_refused(self):
        key = key_file.generate()
        self.write(f"{key}\n{key}\n")
        said = self.refused()
        self.assertIn(f"has key {key_file.key_id(key)} twice, in line 2 again", said)
        self.assertNotIn(key, said)


class ChangeTest(KeyFileTest):
    def test_create_makes_private_file(self):
        name = key_file.create(self.path)
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))
        self.assertEqual([name], key_files.key_ids(self.file))

    def test_create_of_existing_file_is_refused(self):
        name = key_file.create(self.path)
        with self.assertRaises(exception.Conflict):
            key_file.create(self.path)
        self.assertEqual([name], key_files.key_ids(self.file))

    def test_create_error_names_option(self):
        for path in ("secrets.keys", str(self.file.parent / "missing" / "secrets.keys")):
            with self.assertRaises(exception.ConfigurationError) as caught:
                key_file.create(path)
            self.assertIn("[secrets] key_file: ", str(caught.exception))

    def test_refuse_plain_text_adds_line_that_stays(self):
        one = key_file.create(self.path)
        self.assertFalse(key_file.read(self.path).encrypted_only)
        self.assertTrue(key_file.refuse_plain_text(self.path))
        self.assertFalse(key_file.refuse_plain_text(self.path))
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        key_file.remove(self.path, one)
        self.assertEqual((two, True), key_file.read(self.path)[::2])
        self.assertEqual(1, self.file.read_text().count("# encrypted-only\n"))

    def test_add_promote_and_remove_change_order(self):
        one = key_file.create(self.path)
        two, three = key_file.add(self.path), key_file.add(self.path)
        self.assertEqual([one, two, three], key_files.key_ids(self.file))
        key_file.promote(self.path, three)
        self.assertEqual([three, one, two], key_files.key_ids(self.file))
        key_file.promote(self.path, three)
        self.assertEqual([three, one, two], key_files.key_ids(self.file))
        key_file.remove(self.path, one)
        self.assertEqual([three, two], key_files.key_ids(self.file))

    def test_remove_first_key_is_refused(self):
        one = key_file.create(self.path)
        with self.assertRaises(exception.Conflict) as caught:
            key_file.remove(self.path, one)
        self.assertIn(f"Key {one} is the first", str(caught.exception))
        self.assertEqual([one], key_files.key_ids(self.file))

    def test_remove_unknown_key_raises_not_found(self):
        key_file.create(self.path)
        for change in (key_file.promote, key_file.remove):
            with self.assertRaises(exception.NotFound):
                change(self.path, "00000000")

    def test_change_keeps_mode_comments_and_links(self):
        self.write(f"# made in May\n{key_file.generate()}\n", mode=0o640)
        link = self.file.with_name("link")
        link.symlink_to(self.file.name)
        two = key_file.add(str(link))
        key_file.promote(str(link), two)
        self.assertTrue(link.is_symlink())
        self.assertEqual(0o640, stat.S_IMODE(self.file.stat().st_mode))
        self.assertEqual("# made in May", self.file.read_text().splitlines()[0])
        self.assertEqual(two, key_files.key_ids(self.file)[0])
        self.assertEqual(
            {"link", "secrets.keys"}, {path.name for path in self.file.parent.iterdir()}
        )

    def test_change_keeps_comments_of_any_bytes(self):
        remarks = "# für Zürich\u2028\x85 ".encode() + b"\xff\r\n"
        self.write("")
        self.file.write_bytes(remarks + f"{key_file.generate()}\n".encode())
        two = key_file.add(self.path)
        key_file.promote(self.path, two)
        self.assertEqual(two, key_files.key_ids(self.file)[0])
        self.assertTrue(self.file.read_bytes().startswith(remarks))

    def test_add_to_file_without_key_makes_it_first(self):
        for nothing in ("", "# later\n"):
            self.write(nothing)
            self.assertEqual([key_file.add(self.path)], key_files.key_ids(self.file))

    def test_killed_change_leaves_valid_file(self):
        with (
            mock.patch.object(os, "fsync", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            key_file.create(self.path)
        self.assertEqual([], list(self.file.parent.iterdir()))

    def test_change_is_synced_to_disk(self):
        folder = self.file.parent.stat().st_ino
        for change in (key_file.create, key_file.add):
            described = []
            note = mock.Mock(side_effect=lambda file, into=described: into.append(os.fstat(file)))
            with mock.patch.object(os, "fsync", note):
                change(self.path)
            self.assertEqual(folder, described[-1].st_ino, change)
            self.assertEqual(2, len(described))

    def test_concurrent_changes_are_both_kept(self):
        one = key_file.create(self.path)
        both = threading.Barrier(2)
        real, added = key_file._parse_keys, []

        def wait_for_the_other(*arguments):
            found = real(*arguments)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # it times out if the lock is exclusive
            return found

        with mock.patch.object(key_file, "_parse_keys", wait_for_the_other):
            threads = [
                threading.Thread(target=lambda: added.append(key_file.add(self.path)))
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual({one, *added}, set(key_files.key_ids(self.file)))
        self.assertEqual(2, len(added))

    def test_change_without_file_locks_succeeds(self):
        one = key_file.create(self.path)
        with mock.patch("fcntl.flock", side_effect=OSError("no locks available")):
            two = key_file.add(self.path)
        self.assertEqual([one, two], key_files.key_ids(self.file))

    def test_change_of_invalid_file_is_refused(self):
        self.write("precious\n")
        with self.assertRaises(exception.ConfigurationError):
            key_file.add(self.path)
        self.assertEqual("precious\n", self.file.read_text())
