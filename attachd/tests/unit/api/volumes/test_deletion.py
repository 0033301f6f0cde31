# SPDX-License-Identifier: Apache-2.0
"""Deleting volumes: what may be deleted, and what is done then."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import deletion, work
from attachd.tests import asking, rows


class DeletionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.manager_api = self.enterContext(mock.patch.object(work, "manager_api"))

    def delete(self, volume_id, *roles, version=mv.LATEST, **query):
        request = webob.Request.blank("/")
        deletion.delete(asking.context(*roles), volume_id, query, version, request)

    def test_a_free_volume_is_marked_and_sent(self):
        for state in ("ready", "error", "error_deleting", "error_extending"):
            with self.subTest(state):
                volume = rows.add_volume(state)
                self.delete(volume["id"], cascade="True")
                found = rows.volume(volume["id"])
                self.assertEqual(("deleting", "here@fake"), (found["status"], found["owner"]))
                self.assertEqual(volume["id"], self.manager_api.delete_volume.call_args.args[1].id)

    def test_what_it_goes_through_is_named(self):
        for state in ("creating", "extending", "deleting", "maintenance"):
            volume = rows.add_volume(state)
            with self.subTest(state), self.assertRaisesRegex(exception.InvalidVolume, state):
                self.delete(volume["id"])
        self.manager_api.delete_volume.assert_not_called()

    def test_attachments_are_named(self):
        volume = rows.add_volume()
        attachment = rows.add_attachment(volume["id"], "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, attachment["id"]):
            self.delete(volume["id"])
        self.assertEqual("in-use", rows.volume(volume["id"])["status"])

    def test_force_is_for_administrators(self):
        volume = rows.add_volume("creating")
        with self.assertRaisesRegex(exception.Forbidden, "volume:force_delete"):
            self.delete(volume["id"], force="True")
        self.delete(volume["id"], *asking.ADMIN, force="True")
        self.assertEqual("deleting", rows.volume(volume["id"])["status"])

    def test_force_is_ignored_before_3_23(self):
        volume = rows.add_volume("creating")
        with self.assertRaises(exception.InvalidVolume):
            self.delete(volume["id"], *asking.ADMIN, version=mv.Version(3, 22), force="True")

    def test_force_does_not_delete_what_is_attached(self):
        volume = rows.add_volume()
        rows.add_attachment(volume["id"], "attached")
        with self.assertRaises(exception.InvalidVolume):
            self.delete(volume["id"], *asking.ADMIN, force="True")
        self.assertEqual("in-use", rows.volume(volume["id"])["status"])

    def test_nonsense_is_refused_before_anything_is_done(self):
        volume = rows.add_volume()
        for query in ({"force": "perhaps"}, {"cascade": ""}):
            with self.assertRaises(exception.InvalidInput):
                self.delete(volume["id"], **query)
        self.assertEqual("available", rows.volume(volume["id"])["status"])

    def test_who_may_delete(self):
        volume = rows.add_volume()
        with self.assertRaises(exception.Forbidden):
            self.delete(volume["id"], "reader")
        strange = rows.add_volume(project_id=asking.OTHER_PROJECT)
        with self.assertRaises(exception.VolumeNotFound):
            self.delete(strange["id"])
