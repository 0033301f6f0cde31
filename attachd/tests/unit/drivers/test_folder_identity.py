# SPDX-License-Identifier: Apache-2.0
"""The identity of a folder with volumes."""

import os
import shutil
import threading
import unittest

from attachd import exception
from attachd.drivers import folder_identity
from attachd.tests.fixtures import hostile_names, lifetime


class FolderIdentityTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.base = lifetime.temp_dir(self)
        self.folder = self.base / "one"
        self.folder.mkdir()

    def test_folder_keeps_its_identity_also_if_it_is_moved(self):
        first = folder_identity.read_identity(self.folder)
        self.assertEqual(first, folder_identity.read_identity(self.folder))
        moved = self.folder.rename(self.base / "two")
        self.assertEqual(first, folder_identity.read_identity(moved))

    def test_new_and_copied_folders_have_others(self):
        first = folder_identity.read_identity(self.folder)
        copied = shutil.copytree(self.folder, self.base / "copied", copy_function=shutil.copy2)
        self.folder.rename(self.base / "away")
        self.folder.mkdir()
        others = {folder_identity.read_identity(folder) for folder in (copied, self.folder)}
        self.assertEqual(3, len({first, *others}))

    def test_first_callers_at_the_same_time_get_one(self):
        found = []
        barrier = threading.Barrier(8)

        def read():
            barrier.wait()
            found.append(folder_identity.read_identity(self.folder))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((8, 1), (len(found), len(set(found))))
        self.assertEqual([".storage-id"], [path.name for path in self.folder.iterdir()])

    def test_link_in_place_of_the_file_is_refused(self):
        (self.folder / ".storage-id").symlink_to("/etc/hostname")
        with self.assertRaisesRegex(exception.BackendError, "cannot be read"):
            folder_identity.read_identity(self.folder)

    def test_other_content_than_a_number_is_refused_at_once(self):
        path = self.folder / ".storage-id"
        for put in (
            lambda: os.mkfifo(path),  # none opens it for writing
            path.mkdir,
            path.touch,
            lambda: path.write_bytes(b"\xff" * 36),
            lambda: path.write_text("0" * 37),
            lambda: (path.touch(), os.truncate(path, 2**40)),
        ):
            put()
            with self.assertRaisesRegex(exception.BackendError, "cannot be read"):
                folder_identity.read_identity(self.folder)
            hostile_names.remove(path)
