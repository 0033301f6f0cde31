# SPDX-License-Identifier: Apache-2.0
"""What a volume's row says before and after work on it."""

import unittest

from attachd import exception
from attachd.manager import engine, outcomes
from attachd.states import Event, VolumeState
from attachd.tests import backends, rows


class OutcomesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        backends.use(self)

    def test_only_a_row_that_waits_for_the_work_is_due(self):
        volume_id = rows.add_volume("creating")["id"]
        self.assertEqual(volume_id, outcomes.due(volume_id, VolumeState.CREATING)["id"])
        self.assertIsNone(outcomes.due(volume_id, VolumeState.DELETING))
        self.assertIsNone(outcomes.due("gone", VolumeState.CREATING))

    def test_how_it_ended_is_stored_once(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        after = outcomes.note(volume_id, Event.CREATED, {"size_gib": 3})
        self.assertEqual(("available", 3, None), (after["status"], after["size_gib"],
                                                  after["owner"]))  # fmt: skip
        self.assertIsNone(outcomes.note(volume_id, Event.CREATED, {}))
        self.assertIsNone(outcomes.note("gone", Event.CREATED, {}))

    def test_a_failure_is_stored_with_its_reason(self):
        unavailable = exception.Unavailable(reason="The cable is out.")
        for failed in (unavailable, engine.Failed(unavailable, clean=True)):
            volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
            outcomes.fail(volume_id, Event.CREATE_FAILED, failed)
            row = rows.volume(volume_id)
            self.assertEqual(("error", "The cable is out."), (row["status"], row["error"]))
