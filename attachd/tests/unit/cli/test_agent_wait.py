# SPDX-License-Identifier: Apache-2.0
"""What a request that waits for an agent shows."""

import datetime
import unittest
from unittest import mock

from openstack import exceptions

from attachd.cli import agent_wait


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

    def test_deletion_without_agent_waits_for_the_storage(self):
        self.storage.show.return_value = {"id": "a", "agent": None}
        step = agent_wait.Deletion(self.storage, "a")
        self.assertEqual("Waiting for the storage to end the access of attachment a", step())
        self.storage.agent.assert_not_called()

    def test_deletion_reads_its_attachment_once(self):
        self.storage.show.side_effect = [exceptions.HttpException, {"agent": "node-1"}]
        step = agent_wait.Deletion(self.storage, "a")
        self.assertIn("the storage", step())
        self.assertIn("the agent of node-1", step())
        self.assertIn("the agent of node-1", step())
        self.assertEqual(2, self.storage.show.call_count)  # One has failed.
