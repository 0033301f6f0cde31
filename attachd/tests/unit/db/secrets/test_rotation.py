# SPDX-License-Identifier: Apache-2.0
"""Re-encryption step by step; functional/test_key_rotation.py runs it beside services."""

from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.db.engine import session
from attachd.db.secrets import encryption, key_file, rotation
from attachd.db.secrets.encryption import decrypted
from attachd.tests.fixtures import databases, db_rows, key_files
from attachd.tests.unit.db.secrets import test_encryption

INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "p" * 8}}


class RotationTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        self.path = str(self.file)
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        self.enterContext(mock.patch.object(rotation, "BATCH", 2))

    def add(self, number):
        secret = f"{number:032}"
        return db_rows.add_attachment(
            self.volume, "attached", connection_info={**INFO, "number": number}, secret=secret
        )["id"]

    def change_key(self):
        name = key_file.add(self.path)
        key_file.promote(self.path, name)
        encryption.reset()
        return name

    def assert_whole(self, attachments):
        for number, attachment in enumerate(attachments):
            row = db_rows.get_attachment(attachment)
            self.assertEqual({**INFO, "number": number}, decrypted(row, "connection_info"))
            self.assertEqual(f"{number:032}", decrypted(row, "secret"))

    def test_rotate_encrypts_all_values_with_first_key(self):
        one = key_files.key_ids(self.file)[0]
        added = [self.add(0), self.add(1)]
        key_files.configure(self, None)
        added += [self.add(2), self.add(3), self.add(4)]
        db_rows.add_attachment(self.volume)
        key_files.configure(self, self.file)
        self.assertEqual({one: 4, "": 6}, rotation.count_by_key())
        two = self.change_key()
        done = rotation.rotate()
        self.assertEqual((10, 0, {}), (done.encrypted, done.changed, done.unreadable))
        self.assertEqual({two: 10}, rotation.count_by_key())
        self.assert_whole(added)
        again = rotation.rotate()
        self.assertEqual(0, again.encrypted)

    def test_rotate_encrypts_secrets_of_volumes(self):
        db_rows.change_volume(self.volume, provider_secrets={"key": "k"})
        self.add(0)
        two = self.change_key()
        self.assertEqual(3, rotation.rotate().encrypted)
        self.assertEqual({two: 3}, rotation.count_by_key())
        row = db_rows.get_volume(self.volume)
        self.assertEqual({"key": "k"}, decrypted(row, "provider_secrets", encryption.VOLUMES))
        session.write(sa.text(f"UPDATE volumes SET provider_secrets = '{encryption.MARK}x:y'"))
        done = rotation.rotate()
        self.assertFalse(done.is_complete)
        self.assertEqual(([self.volume], {}), (list(done.unreadable_volumes), done.unreadable))

    def test_rotate_binds_values_of_former_format(self):
        attachment = self.add(0)
        former = test_encryption.encrypt_in_former_format(self.file, f"{0:032}")
        write = sa.text("UPDATE attachments SET secret = :secret")
        session.write(write.bindparams(secret=former))
        name = key_files.key_ids(self.file)[0]
        self.assertEqual({name: 2}, rotation.count_by_key())
        self.assertEqual(1, rotation.rotate().encrypted)
        self.assertEqual({name: 2}, rotation.count_by_key())
        self.assertTrue(key_files.stored_column("secret")[0].startswith(encryption.MARK))
        self.assert_whole([attachment])

    def test_rotate_does_not_encrypt_refused_plain_text(self):
        attachment = self.add(0)
        key_file.refuse_plain_text(self.path)
        session.write(sa.text("UPDATE attachments SET secret = 'forged'"))
        done = rotation.rotate()
        self.assertEqual(([attachment], False), (list(done.unreadable), done.is_complete))
        self.assertEqual(["forged"], key_files.stored_column("secret"))

    def test_rotate_keeps_updated_at(self):
        attachment = self.add(0)
        before = db_rows.get_attachment(attachment)["updated_at"]
        self.change_key()
        self.assertEqual(2, rotation.rotate().encrypted)
        self.assertEqual(before, db_rows.get_attachment(attachment)["updated_at"])

    def test_rotate_continues_after_interruption(self):
        added = [self.add(number) for number in range(5)]
        two = self.change_key()
        real, left = rotation._swap, [3]

        def die_later(row, new):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(row, new)

        with (
            mock.patch.object(rotation, "_swap", die_later),
            self.assertRaises(KeyboardInterrupt),
        ):
            rotation.rotate()
        self.assertEqual(6, rotation.count_by_key()[two])
        self.assert_whole(added)
        self.assertEqual(4, rotation.rotate().encrypted)
        self.assert_whole(added)

    def test_rotate_skips_concurrently_changed_row(self):
        attachment = self.add(0)
        self.change_key()
        real = rotation._swap

        def be_late(row, new):
            db_rows.change_attachment(attachment, secret="n" * 32)
            return real(row, new)

        with mock.patch.object(rotation, "_swap", be_late):
            done = rotation.rotate()
        self.assertEqual((0, 1), (done.encrypted, done.changed))
        self.assertEqual("n" * 32, decrypted(db_rows.get_attachment(attachment), "secret"))

    def test_rotate_reports_unreadable_row_and_keeps_it(self):
        lost = self.add(0)
        before = key_files.stored_column("secret")
        key_files.replace_all_keys(self.file)
        kept = self.add(1)
        done = rotation.rotate()
        self.assertEqual([lost], list(done.unreadable))
        self.assertIn("which is not in", done.unreadable[lost])
        self.assertEqual(before, key_files.stored_column("secret")[:1])
        self.assertEqual(f"{1:032}", decrypted(db_rows.get_attachment(kept), "secret"))

    def test_rotate_without_key_file_is_refused(self):
        key_files.configure(self, None)
        with self.assertRaises(exception.ConfigurationError) as caught:
            rotation.rotate()
        self.assertIn("[secrets] key_file is not set", str(caught.exception))

    def test_count_by_key_of_empty_table_is_empty(self):
        with session.reader():
            self.assertEqual({}, rotation.count_by_key())
