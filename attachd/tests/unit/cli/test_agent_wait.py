# SPDX-License-Identifier: Apache-2.0
"""What a deletion that takes long shows."""

import datetime
import threading
import unittest
from unittest import mock

from openstack import exceptions

from attachd.cli import agent_wait
from attachd.tests.wait import TIMEOUT


class AgentWaitTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = mock.Mock()
        self.storage.show.return_value = {"id": "a", "agent": "node-1"}
        seen = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=40)
        self.storage.agent.return_value = {"last_seen": seen.replace(tzinfo=None).isoformat()}

    def describe(self):
        return agent_wait.describe(self.storage, "node-1")

    def test_description_names_the_host_and_its_last_report(self):
        self.assertRegex(
            self.describe(), r"\AWaiting for the agent of node-1, whose last report is 4\d s old"
        )

    def test_user_who_may_not_read_agents_sees_the_host(self):
        self.storage.agent.side_effect = exceptions.HttpException
        self.assertEqual("Waiting for the agent of node-1", self.describe())

    def test_agent_that_never_reported_is_named_so(self):
        self.storage.agent.return_value = {"last_seen": None}
        self.assertIn("has never reported", self.describe())

    def test_attachment_without_agent_shows_nothing(self):
        is_read, progress = threading.Event(), mock.Mock()

        def show(_attachment_id):
            is_read.set()
            return {"id": "a", "agent": None}

        self.storage.show.side_effect = show
        with (
            mock.patch.object(agent_wait, "DELAY", 0.0),
            agent_wait.shown(self.storage, "a", progress),
        ):
            self.assertTrue(is_read.wait(TIMEOUT))
        progress.assert_not_called()

    def test_deletion_that_takes_long_shows_each_interval(self):
        lines, again = [], threading.Event()

        def progress(text):
            lines.append(text)
            if len(lines) == 2:
                again.set()

        self.storage.show.side_effect = [exceptions.HttpException, *[{"agent": "node-1"}] * 1000]
        with (
            mock.patch.object(agent_wait, "DELAY", 0.0),
            mock.patch.object(agent_wait, "INTERVAL", 0.01),
            agent_wait.shown(self.storage, "a", progress),
        ):
            self.assertTrue(again.wait(TIMEOUT))
        self.assertIn("node-1", lines[0])
        self.assertEqual(2, self.storage.show.call_count)  # One has failed.

    def test_deletion_that_is_fast_asks_for_nothing(self):
        with agent_wait.shown(self.storage, "a", mock.Mock()):
            pass
        self.storage.show.assert_not_called()
