# SPDX-License-Identifier: Apache-2.0
"""Hard links as the record of what is granted."""

import os
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, linked_files
from attachd.tests.fixtures import lifetime

VOLUME = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c11", 1)
UNKNOWN = "7f4f0a56-57a4-4d6b-9f0b-7a8b6f8f1c22"
FIRST, SECOND = "57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd01", "57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd02"


class LinkedFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.files = linked_files.LinkedFiles(lifetime.temp_dir(self))
        self.files.prepare()
        self.files.create(VOLUME)

    def test_link_is_the_file_of_the_volume(self):
        path = self.files.link(VOLUME.id, FIRST)
        self.assertTrue(path.samefile(self.files.path(VOLUME.id)))
        self.assertEqual(path, self.files.link(VOLUME.id, FIRST))

    def test_link_of_unknown_volume_is_refused_finally(self):
        with self.assertRaises(exception.BackendError) as raised:
            self.files.link(UNKNOWN, FIRST)
        self.assertTrue(raised.exception.final)
        self.assertEqual(set(), self.files.links(self.files.exports))

    def test_link_with_path_as_name_is_refused(self):
        for names in ((VOLUME.id, "../volumes/x"), ("..", FIRST)):
            self.assertRaises(exception.BackendError, self.files.link, *names)

    def test_sync_link_syncs_both_folders(self):
        path = self.files.link(VOLUME.id, FIRST)
        with mock.patch.object(os, "fsync") as fsync:
            self.files.sync_link(path)
        self.assertEqual(2, fsync.call_count)

    def test_links_are_listed_by_volume_and_of_all_volumes(self):
        paths = {self.files.link(VOLUME.id, name) for name in (FIRST, SECOND)}
        self.assertEqual(paths, self.files.links(self.files.exports))
        self.assertEqual(paths, self.files.links(self.files.link_folder(VOLUME.id)))
        self.assertEqual(set(), self.files.links(self.files.link_folder(UNKNOWN)))

    def test_delete_of_linked_volume_names_attachment_and_keeps_file(self):
        path = self.files.link(VOLUME.id, FIRST)
        with self.assertRaisesRegex(exception.BackendError, FIRST) as raised:
            self.files.delete(VOLUME.id)
        self.assertTrue(raised.exception.final)
        self.assertTrue(self.files.path(VOLUME.id).is_file())
        self.files.unlink(path)
        self.files.delete(VOLUME.id)
        self.assertEqual({}, self.files.sizes())

    def test_unlink_removes_folder_with_last_link(self):
        first, second = (self.files.link(VOLUME.id, name) for name in (FIRST, SECOND))
        self.files.unlink(first)
        self.assertTrue(second.parent.is_dir())
        for _ in range(2):
            self.files.unlink(second)
            self.assertFalse(second.parent.exists())
