# SPDX-License-Identifier: Apache-2.0
"""The delete flow: nothing that was removed comes back."""

import unittest

from attachd.drivers.base import VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import delete
from attachd.tests.backends import RecordingDriver

VOLUME = VolumeRef("volume", 2, {"lun": 1})


class DeleteFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_the_driver_gets_all_it_needs(self):
        flow_runner.run(delete.build(self.driver, VOLUME), {})
        self.assertEqual(
            [("delete", VOLUME)], [(each.method, each.volume) for each in self.driver.handed]
        )

    def test_a_failure_is_told_and_nothing_is_made_again(self):
        with self.driver.failing("delete"), self.assertRaises(flow_runner.Failed) as failed:
            flow_runner.run(delete.build(self.driver, VOLUME), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("burns", str(failed.exception.cause))
        self.assertEqual(["delete"], self.driver.methods)
