# SPDX-License-Identifier: Apache-2.0
"""Who may act on which volume."""

import unittest

from attachd import exception
from attachd.api.volumes import load, policy
from attachd.db import api
from attachd.tests import asking, rows


class LoadTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.mine = rows.add_volume()["id"]
        self.strange = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]

    def test_the_own_ones(self):
        found = load.volume(asking.context(), self.mine, policy.UPDATE)
        self.assertEqual(self.mine, found.id)

    def test_those_of_others_are_not_there_but_for_administrators(self):
        with self.assertRaises(exception.VolumeNotFound):
            load.volume(asking.context(), self.strange, policy.GET)
        found = load.volume(asking.context(*asking.ADMIN), self.strange, policy.GET)
        self.assertEqual(self.strange, found.id)

    def test_a_reader_may_not_change_anything(self):
        load.volume(asking.context("reader"), self.mine, policy.GET)
        with self.assertRaisesRegex(exception.Forbidden, "volume:update"):
            load.volume(asking.context("reader"), self.mine, policy.UPDATE)

    def test_nothing_is_changed_in_maintenance(self):
        volume = rows.add_volume("maintenance")["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            load.writable(asking.context(), volume, policy.UPDATE)
        load.writable(asking.context(), self.mine, policy.UPDATE)

    def test_attachments_of_a_page_are_one_statement(self):
        volumes = [rows.add_volume() for _ in range(3)]
        rows.add_attachment(volumes[1]["id"], "attached")
        before = api.counters().statements
        found = load.listed_with_attachments(asking.context(), volumes)
        self.assertEqual(1, api.counters().statements - before)
        self.assertEqual([0, 1, 0], [len(attachments) for _, attachments in found])
