# SPDX-License-Identifier: Apache-2.0
"""A host generates its key once, and only its owner can read it."""

import os
from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import key
from attachd.tests import concurrency
from attachd.tests.fixtures import lifetime


class KeyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = lifetime.temp_dir(self) / "host" / "agent.key"

    def test_key_is_created_once_and_private(self):
        first = key.load_or_create(self.path)
        self.assertEqual(43, len(first))
        self.assertEqual(first, key.load_or_create(self.path))
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)
        self.assertEqual(0o700, self.path.parent.stat().st_mode & 0o777)
        self.assertEqual([self.path], list(self.path.parent.iterdir()))

    def test_keys_of_hosts_differ(self):
        other = self.path.with_name("other.key")
        self.assertNotEqual(key.load_or_create(self.path), key.load_or_create(other))

    def test_key_is_synced_before_return(self):
        synced = []

        def sync(file):
            synced.append((Path(f"/proc/self/fd/{file}").readlink(), self.path.exists()))

        with mock.patch("os.fsync", sync):
            key.load_or_create(self.path)
        (_, (folder, in_place)) = synced
        self.assertEqual((self.path.parent, True), (folder, in_place))

    def test_concurrent_starts_share_key(self):
        found = concurrency.run_at_once(*[lambda: key.load_or_create(self.path)] * 8)
        self.assertEqual(1, len(set(found)), found)
        self.assertEqual([self.path], list(self.path.parent.iterdir()))

    def test_key_readable_by_others_is_refused(self):
        key.load_or_create(self.path)
        for mode in (0o640, 0o604, 0o660, 0o611):
            self.path.chmod(mode)
            with self.assertRaisesRegex(exception.HostError, "others may know"):
                key.load_or_create(self.path)

    def test_key_of_other_owner_is_refused(self):
        key.load_or_create(self.path)
        with (
            mock.patch("os.geteuid", return_value=os.geteuid() + 1),
            mock.patch("os.fstat", return_value=mock.Mock(st_uid=4711, st_mode=0o100600)),
            self.assertRaises(exception.HostError),
        ):
            key.load_or_create(self.path)

    def test_short_key_is_refused(self):
        self.path.parent.mkdir()
        for text in ("", "\n", "hunter2\n"):
            self.path.write_text(text)
            self.path.chmod(0o600)
            with self.assertRaisesRegex(exception.HostError, "no key"):
                key.load_or_create(self.path)

    def test_failed_sync_leaves_no_key(self):
        with mock.patch("os.fsync", side_effect=OSError(28, "full")), self.assertRaises(OSError):
            key.load_or_create(self.path)
        self.assertEqual([], list(self.path.parent.iterdir()))
