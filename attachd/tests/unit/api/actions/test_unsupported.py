# SPDX-License-Identifier: Apache-2.0
"""Actions that this service does not have."""

import unittest

from attachd import exception
from attachd.api import endpoint
from attachd.api.actions import unsupported
from attachd.tests import asking, rows


class RefusedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.handlers = {
            each.action: each.handler for each in endpoint.load() if each.path == unsupported.PATH
        }

    def test_each_says_why_and_changes_nothing(self):
        volume_id = rows.add_volume()["id"]
        before = rows.volume(volume_id)
        for each in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaises(exception.BadRequest) as caught:
                self.handlers[each.name](asking.context(*asking.ADMIN), volume_id)
            self.assertIn(f"{each.name} is not supported", str(caught.exception))
            self.assertIn(each.reason, str(caught.exception))
        self.assertEqual(before, rows.volume(volume_id))

    def test_who_may_not_hears_that_first(self):
        volume_id = rows.add_volume()["id"]
        for each in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaisesRegex(exception.Forbidden, each.policy):
                self.handlers[each.name](asking.context("reader"), volume_id)

    def test_another_projects_volume_is_not_there(self):
        volume_id = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]
        for each in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaises(exception.VolumeNotFound):
                self.handlers[each.name](asking.context(), volume_id)
