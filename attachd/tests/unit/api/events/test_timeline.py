# SPDX-License-Identifier: Apache-2.0
"""Looking back at one attachment."""

import unittest

from attachd import exception
from attachd.api.events import timeline
from attachd.db import events
from attachd.tests import asking
from attachd.tests.unit.api.events.feeding import tell


class TimelineTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_it_is_in_order_and_of_the_project(self):
        mine = tell(2)
        told = timeline.timeline(asking.context(), mine)["timeline"]
        self.assertEqual([None, None], [each["revision"] for each in told])
        events.give_places()
        told = timeline.timeline(asking.context(), mine)["timeline"]
        self.assertEqual([1, 2], [each["revision"] for each in told])
        self.assertNotIn("process", told[0])
        stranger = asking.context(project=asking.OTHER_PROJECT)
        with self.assertRaises(exception.AttachmentNotFound):
            timeline.timeline(stranger, mine)

    def test_administrators_see_those_of_all_projects_and_where_it_was_done(self):
        mine = tell(project_id=asking.OTHER_PROJECT)
        (told,) = timeline.timeline(asking.context(*asking.ADMIN), mine)["timeline"]
        self.assertIn("process", told)
