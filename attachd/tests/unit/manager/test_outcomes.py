# SPDX-License-Identifier: Apache-2.0
"""What a volume's row says before and after work on it."""

import unittest

from attachd import exception
from attachd.manager import flow_runner, outcomes
from attachd.states import Event, VolumeState
from attachd.tests import backends, rows


class OutcomesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)

    def test_only_a_row_that_waits_for_the_work_is_due(self):
        volume_id = rows.add_volume("creating")["id"]
        self.assertEqual(volume_id, outcomes.due(volume_id, VolumeState.CREATING)["id"])
        self.assertIsNone(outcomes.due(volume_id, VolumeState.DELETING))
        self.assertIsNone(outcomes.due("gone", VolumeState.CREATING))

    def test_how_it_ended_is_stored_once(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as turn:
            after = outcomes.note(turn, Event.CREATED, {"size_gib": 3})
            self.assertEqual(("available", 3, None), (after["status"], after["size_gib"],
                                                      after["owner"]))  # fmt: skip
            self.assertIsNone(outcomes.note(turn, Event.CREATED, {}))

    def test_what_has_become_others_meanwhile_is_left_as_it_is(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as turn:
            rows.change_volume(volume_id, lease_holder="other", lease_generation=7)
            before = rows.volume(volume_id)
            self.assertIsNone(outcomes.note(turn, Event.CREATED, {}))
            outcomes.fail(turn, Event.CREATE_FAILED, exception.Unavailable(reason="Broken."))
            self.assertEqual(before, rows.volume(volume_id))
            rows.remove_all()
            self.assertIsNone(outcomes.note(turn, Event.CREATED, {}))

    def test_whoever_may_have_been_taken_for_dead_leaves_the_row_to_others(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as turn:
            before = rows.volume(volume_id)
            self.backend.presence.id = "another one by now"
            self.backend.presence.beat()
            outcomes.fail(turn, Event.CREATE_FAILED, exception.Unavailable(reason="Late."))
            self.assertEqual(before, rows.volume(volume_id))

    def test_a_failure_is_stored_with_its_reason(self):
        unavailable = exception.Unavailable(reason="The cable is out.")
        for failed in (unavailable, flow_runner.Failed(unavailable, clean=True)):
            volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
            with self.backend.lock(volume_id) as turn:
                outcomes.fail(turn, Event.CREATE_FAILED, failed)
            row = rows.volume(volume_id)
            self.assertEqual(("error", "The cable is out."), (row["status"], row["error"]))
