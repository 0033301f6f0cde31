# SPDX-License-Identifier: Apache-2.0
"""The extend flow: no data is cut off."""

import unittest

from attachd.drivers.base import Export, VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import extend
from attachd.tests.backends import RecordingDriver

VOLUME = VolumeRef("volume", 2, {"lun": 1})
OTHERS = [Export("other", {"host": "i"})]


class ExtendFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_the_driver_gets_all_it_needs(self):
        flow_runner.run(extend.build(self.driver, VOLUME, 5, OTHERS), {})
        (handed,) = self.driver.handed
        self.assertEqual(("extend", VOLUME), (handed.method, handed.volume))
        self.assertEqual((5, OTHERS), (handed.size_gib, handed.others))

    def test_a_failure_is_told_and_nothing_shrinks(self):
        with self.driver.failing("extend"), self.assertRaises(flow_runner.Failed) as failed:
            flow_runner.run(extend.build(self.driver, VOLUME, 5, OTHERS), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("burns", str(failed.exception.cause))
        self.assertEqual(["extend"], self.driver.methods)
