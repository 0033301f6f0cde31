# SPDX-License-Identifier: Apache-2.0
"""The detach flow: nobody is let in again."""

import unittest

from attachd.drivers.base import Export, VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import detach
from attachd.tests.backends import RecordingDriver

VOLUME = VolumeRef("volume", 2, {"lun": 1})
MINE = Export("mine", {"host": "h"})
OTHERS = [Export("other", {"host": "i"})]


class DetachFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def _run(self):
        work = detach.Work(self.driver, VOLUME, MINE, OTHERS)
        return flow_runner.run_again(detach.build, {"work": work})

    def test_the_driver_gets_all_it_needs(self):
        self._run()
        (handed,) = self.driver.handed
        self.assertEqual(("revoke", VOLUME), (handed.method, handed.volume))
        self.assertEqual((MINE, OTHERS), (handed.export, handed.others))

    def test_a_failure_is_told_and_nobody_is_let_in_again(self):
        with self.driver.failing("revoke"), self.assertRaises(flow_runner.Failed) as failed:
            self._run()
        self.assertFalse(failed.exception.clean)
        self.assertIn("burns", str(failed.exception.cause))
        self.assertEqual(["revoke"], self.driver.methods)
