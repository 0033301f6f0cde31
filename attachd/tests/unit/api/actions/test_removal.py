# SPDX-License-Identifier: Apache-2.0
"""Deleting volumes by force, as an action."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api.actions import removal
from attachd.api.volumes import work
from attachd.tests import asking, rows


class ForceDeleteTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.manager_api = self.enterContext(mock.patch.object(work, "manager_api"))

    def test_whatever_its_status(self):
        for state in ("ready", "creating", "deleting", "maintenance", "error", "extending"):
            volume_id = rows.add_volume(state)["id"]
            removal.force_delete(
                asking.context(*asking.ADMIN), volume_id, webob.Request.blank("/")
            )
            self.assertEqual("deleting", rows.volume(volume_id)["status"])
            self.assertEqual(volume_id, self.manager_api.delete_volume.call_args.args[1].id)

    def test_not_while_it_is_attached(self):
        volume_id = rows.add_volume()["id"]
        rows.add_attachment(volume_id, "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, "is attached"):
            removal.force_delete(
                asking.context(*asking.ADMIN), volume_id, webob.Request.blank("/")
            )
        self.assertEqual("in-use", rows.volume(volume_id)["status"])

    def test_only_administrators_may(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "admin_actions:force_delete"):
            removal.force_delete(asking.context(), volume_id, webob.Request.blank("/"))
