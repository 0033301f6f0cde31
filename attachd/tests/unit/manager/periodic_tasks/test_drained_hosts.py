# SPDX-License-Identifier: Apache-2.0
"""Tests of the task that goes on with drains; functional/test_draining has the whole."""

from unittest import mock

from attachd import exception
from attachd.closed_hosts import drains
from attachd.db import host_fences
from attachd.manager.periodic_tasks.drained_hosts import DrainedHostsTask
from attachd.tests.fixtures import api_context


class DrainedHostsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        for host in ("a", "b"):
            host_fences.drain(host, "repair", "u")
        self.task = DrainedHostsTask(mock.Mock())

    def run_once(self, **advance):
        """Run the task; return the hosts whose drains it advances."""
        with mock.patch.object(drains, "advance", **advance) as call:
            self.task.run_once()
        return [arguments.args[1] for arguments in call.call_args_list]

    def test_each_drain_advances_until_it_has_ended(self):
        self.assertEqual(["a", "b"], self.run_once())
        # Nothing was to be detached.
        self.assertEqual([], self.run_once())

    def test_unforeseen_error_of_one_host_does_not_keep_the_next(self):
        self.assertEqual(["a", "b"], self.run_once(side_effect=[ValueError(), False]))
        self.assertEqual(["a"], self.run_once())

    def test_database_that_is_away_ends_the_run(self):
        with self.assertRaises(exception.Unavailable):
            self.run_once(side_effect=exception.Unavailable(reason="no database"))
        self.assertEqual(["a", "b"], self.run_once())
