# SPDX-License-Identifier: Apache-2.0
"""The create flow: what is begun is removed again."""

import unittest

from attachd.drivers.base import VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import create
from attachd.tests.backends import RecordingDriver

VOLUME = VolumeRef("volume", 2)


class CreateFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_the_drivers_notes_are_provided(self):
        self.assertEqual(
            {"lun": 1}, flow_runner.run(create.build(self.driver, VOLUME), {})["provider"]
        )
        self.assertEqual({"volume": 2}, self.driver.sizes())

    def test_a_copy_is_made_of_its_source_and_removed_in_the_same_way(self):
        source = VolumeRef("source", 1)
        flow = create.build_copy(self.driver, VOLUME, source)
        self.assertEqual({"lun": 1}, flow_runner.run(flow, {})["provider"])
        self.assertEqual(
            (VOLUME, source), (self.driver.handed[0].volume, self.driver.handed[0].source)
        )
        with self.driver.failing("clone"), self.assertRaises(flow_runner.Failed) as failed:
            flow_runner.run(create.build_copy(self.driver, VOLUME, source), {})
        self.assertTrue(failed.exception.clean)
        self.assertEqual(["clone", "clone", "delete"], self.driver.methods)

    def test_what_may_have_been_made_is_removed(self):
        with self.driver.failing("create"), self.assertRaises(flow_runner.Failed) as failed:
            flow_runner.run(create.build(self.driver, VOLUME), {})
        self.assertTrue(failed.exception.clean)
        self.assertEqual(["create", "delete"], self.driver.methods)

    def test_removing_may_fail_too_and_does_not_hide_the_cause(self):
        with (
            self.driver.failing("create", "delete"),
            self.assertRaises(flow_runner.Failed) as failed,
        ):
            flow_runner.run(create.build(self.driver, VOLUME), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("burns", str(failed.exception.cause))
