# SPDX-License-Identifier: Apache-2.0
"""Create, show and update, below HTTP."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import handlers, work
from attachd.db import volume_metadata
from attachd.tests import asking, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report()
        self.ctx = asking.context()
        self.manager_api = self.enterContext(mock.patch.object(work, "manager_api"))

    def call(self, handler, *arguments, ctx=None):
        return handler(ctx or self.ctx, *arguments, mv.LATEST, asking.links(), None)["volume"]


class CreateTest(Case):
    def test_it_stores_sends_and_shows(self):
        body = {"volume": {"size": 2, "name": "n", "metadata": {"k": "v"}}}
        shown = self.call(handlers.create, body)
        self.assertEqual(
            ("creating", 2, "n", {"k": "v"}),
            tuple(shown[key] for key in ("status", "size", "name", "metadata")),
        )
        (_, sent), _ = self.manager_api.create_volume.call_args
        self.assertEqual(shown["id"], sent.id)
        self.assertEqual("here@fake#fake", rows.volume(shown["id"])["host"])

    def test_a_refused_wish_stores_nothing(self):
        with self.assertRaises(exception.NoBackendFits):
            self.call(handlers.create, {"volume": {"size": 10**6}})
        self.assertEqual([], rows.volumes())
        self.manager_api.create_volume.assert_not_called()


class ShowTest(Case):
    def test_it_shows_attachments(self):
        volume = rows.add_volume()
        attachment = rows.add_attachment(volume["id"], "attached")
        shown = self.call(handlers.show, volume["id"])
        self.assertEqual("in-use", shown["status"])
        self.assertEqual([attachment["id"]], [a["attachment_id"] for a in shown["attachments"]])

    def test_others_do_not_see_it(self):
        volume = rows.add_volume()
        with self.assertRaises(exception.VolumeNotFound):
            self.call(
                handlers.show, volume["id"], ctx=asking.context(project=asking.OTHER_PROJECT)
            )


class UpdateTest(Case):
    def update(self, volume, **changes):
        return self.call(handlers.update, volume["id"], {"volume": changes})

    def test_it_changes_what_is_given_and_nothing_else(self):
        volume = rows.add_volume(name="old", description="text")
        volume_metadata.merge(volume["id"], {"k": "v"})
        shown = self.update(volume, name="new")
        self.assertEqual(
            ("new", "text", {"k": "v"}),
            (shown["name"], shown["description"], shown["metadata"]),
        )
        self.assertIsNotNone(shown["updated_at"])

    def test_texts_can_be_taken_away(self):
        shown = self.update(
            rows.add_volume(name="old", description="d"), name=None, description=""
        )
        self.assertEqual((None, ""), (shown["name"], shown["description"]))

    def test_metadata_is_replaced(self):
        volume = rows.add_volume()
        volume_metadata.merge(volume["id"], {"a": "1", "b": "2"})
        self.assertEqual({"b": "3"}, self.update(volume, metadata={"b": "3"})["metadata"])

    def test_not_in_maintenance(self):
        with self.assertRaises(exception.InvalidVolume):
            self.update(rows.add_volume("maintenance"), name="n")

    def test_the_answer_lacks_the_extended_attributes(self):
        self.assertNotIn("os-vol-tenant-attr:tenant_id", self.update(rows.add_volume(), name="n"))
