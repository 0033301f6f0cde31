# SPDX-License-Identifier: Apache-2.0
"""What comes of one piece of recovery."""

import unittest
from unittest import mock

from attachd import exception
from attachd.manager.attempts import attempt


class AttemptTest(unittest.TestCase):
    """Whether a row needs more work."""

    def after(self, error=None):
        return attempt("one", mock.Mock(side_effect=error))

    def test_what_went_well_needs_none(self):
        self.assertTrue(self.after())

    def test_what_is_gone_or_in_other_hands_needs_none(self):
        self.assertTrue(self.after(exception.VolumeNotFound(volume_id="v")))
        self.assertTrue(self.after(exception.InvalidTransition("It is in other hands.")))

    def test_what_has_failed_and_says_so_needs_none(self):
        for kind in (exception.ConnectFailed, exception.DisconnectFailed):
            self.assertTrue(self.after(kind(attachment_id="a", reason="It burns.")))

    def test_what_could_not_be_done_now_needs_more(self):
        with self.assertLogs("attachd.manager.attempts", "WARNING") as logged:
            self.assertFalse(self.after(exception.Unavailable(reason="It is away.")))
        self.assertIsNone(logged.records[0].exc_info)

    def test_a_bug_is_logged_and_keeps_nobody_from_the_others(self):
        with self.assertLogs("attachd.manager.attempts", "ERROR") as logged:
            self.assertFalse(self.after(ZeroDivisionError()))
        self.assertTrue(logged.records[0].exc_info)
