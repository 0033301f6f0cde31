# SPDX-License-Identifier: Apache-2.0
"""The attach flow: what it undoes, and when it does not."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.base import Export, VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import attach
from attachd.tests.backends import RecordingDriver

VOLUME = VolumeRef("volume", 1)
MINE = Export("mine", {"host": "h"})
OTHERS = [Export("other", {"host": "i"})]


class AttachFlowTest(unittest.TestCase):
    """Grant, then record."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()
        self.save = mock.Mock(return_value=None)
        self.wanted = mock.Mock(return_value=False)

    def _run(self, **more):
        work = attach.Work(self.driver, VOLUME, MINE, OTHERS, self.save, self.wanted, **more)
        return flow_runner.run_again(attach.build, {"work": work})

    def _fail(self, **more):
        with self.assertRaises(flow_runner.Failed) as failed:
            self._run(**more)
        return failed.exception

    def test_the_connection_is_recorded_and_provided(self):
        provided = self._run()["connection"]
        self.save.assert_called_once_with(provided)
        self.assertEqual("fake", provided["driver_volume_type"])
        self.assertEqual(["grant"], self.driver.methods)
        self.wanted.assert_not_called()

    def test_a_record_that_fails_undoes_the_grant_and_spares_the_others(self):
        self.save.side_effect = exception.Conflict(reason="lost")
        failed = self._fail()
        self.assertIs(self.save.side_effect, failed.cause)
        self.assertTrue(failed.clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)
        undone = self.driver.handed[1]
        self.assertEqual((VOLUME, MINE, OTHERS), (undone.volume, undone.export, undone.others))

    def test_a_grant_that_surely_failed_is_not_undone(self):
        with self.driver.failing("grant", final=True):
            self.assertTrue(self._fail().clean)
        self.assertEqual(["grant"], self.driver.methods)
        self.save.assert_not_called()

    def test_a_repeated_grant_that_surely_failed_is_undone_since_the_first_may_have_landed(self):
        with self.driver.failing("grant", final=True):
            self.assertTrue(self._fail(repeated=True).clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_a_grant_that_may_have_landed_is_undone(self):
        with self.driver.failing("grant"):
            self.assertTrue(self._fail().clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_undoing_that_fails_leaves_something_and_does_not_hide_the_cause(self):
        with self.driver.failing("revoke"):
            self.save.side_effect = exception.Conflict(reason="lost")
            failed = self._fail()
        self.assertFalse(failed.clean)
        self.assertIs(self.save.side_effect, failed.cause)

    def test_what_is_wanted_nevertheless_is_not_undone(self):
        self.wanted.return_value = True
        self.save.side_effect = exception.Conflict(reason="lost")
        self.assertFalse(self._fail().clean)
        self.assertEqual(["grant"], self.driver.methods)
