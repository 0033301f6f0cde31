# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.manager import copy_progress


class StoredTest(unittest.TestCase):
    def report(self, store, *fractions):
        with copy_progress.stored("Volume v", store):
            for fraction in fractions:
                base.report_progress(fraction)

    def test_progress_is_stored_at_intervals(self):
        store = mock.Mock()
        self.report(store, 0.1, 0.2)
        store.assert_not_called()

    def test_progress_is_per_cent_and_stored_once(self):
        store = mock.Mock()
        with mock.patch.object(copy_progress, "INTERVAL", 0):
            self.report(store, -1.0, 0.5, 0.501, 7.0)
        self.assertEqual([mock.call(50), mock.call(100)], store.mock_calls)

    def test_failure_to_store_is_logged_and_ends_nothing(self):
        store = mock.Mock(side_effect=exception.Unavailable(reason="down"))
        with (
            mock.patch.object(copy_progress, "INTERVAL", 0),
            self.assertLogs(copy_progress.LOG.name, "INFO") as logged,
        ):
            self.report(store, 0.5, 0.6)
        self.assertEqual(2, store.call_count)
        self.assertIn("Volume v: progress not stored", logged.output[0])
