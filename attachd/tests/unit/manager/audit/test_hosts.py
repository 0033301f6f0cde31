# SPDX-License-Identifier: Apache-2.0
"""What agents say of their devices, compared with the rows."""

import datetime
import unittest
from unittest import mock
import uuid

from attachd.db import models
from attachd.db.agents import store as agents
from attachd.manager.audit import hosts
from attachd.manager.audit.rules import Kind
from attachd.tests import backends, rows


class HostsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.enterContext(mock.patch.object(hosts, "_POLL_INTERVAL", 0.0))
        # Agents report in time, except where one falls silent, however slow all is.
        backends.override(self, "report_interval", 3600, "agent")
        self.volume = rows.add_volume()["id"]
        self.row = rows.add_attachment(self.volume, "attached", agent="h1")
        agents.create("h1", "key")
        self.report()

    def device(self, path="/dev/loop7", attachment_id=None, volume_id=None):
        return {
            "attachment_id": attachment_id or self.row["id"],
            "volume_id": volume_id or self.volume,
            "path": path,
            "size_bytes": 2**30,
        }

    def report(self, *devices):
        agents.record_report("h1", {"devices": list(devices)})

    def compare(self, *later):
        """Compare, while the host goes on reporting these devices."""
        real = agents.list_all

        def all_():
            found = real()
            self.report(*later)
            return found

        with mock.patch.object(agents, "list_all", all_):
            return hosts.compare(self.backend)

    def found(self, *later):
        verdict = self.compare(*later)
        self.assertEqual([], verdict.not_compared)
        return [(each.kind, each.volume_id) for each in verdict.differences]

    def test_a_device_for_each_attachment_is_no_difference(self):
        self.report(self.device())
        self.assertEqual([], self.found(self.device()))

    def test_a_device_that_two_reports_miss_is_missing(self):
        self.assertEqual([(Kind.MISSING_DEVICE, self.volume)], self.found())
        gone = self.device(path=None)
        self.report(gone)
        self.assertEqual([(Kind.MISSING_DEVICE, self.volume)], self.found(gone))

    def test_a_device_that_the_next_report_has_is_none(self):
        self.assertEqual([], self.found(self.device()))

    def test_an_attachment_that_moved_meanwhile_is_not_judged(self):
        real = agents.list_all

        def all_():
            found = real()
            self.report()
            rows.change_attachment(self.row["id"], updated_at=models.now())
            return found

        with mock.patch.object(agents, "list_all", all_):
            self.assertEqual([], hosts.compare(self.backend).differences)

    def test_one_that_is_still_to_be_made_or_is_going_is_not_missing(self):
        for state in ("connected", "withdrawing"):
            rows.change_attachment(self.row["id"], state=state)
            self.assertEqual([], self.found())

    def test_a_device_without_an_attachment_is_left_over(self):
        stray = self.device(attachment_id=f"{uuid.uuid4()}")
        self.report(self.device(), stray)
        (difference,) = self.compare(self.device(), stray).differences
        self.assertEqual(Kind.LEFTOVER_DEVICE, difference.kind)
        self.assertIn("/dev/loop7", difference.found)

    def test_what_is_of_another_backend_is_left_to_its_audit(self):
        elsewhere = self.device(attachment_id="a", volume_id=f"{uuid.uuid4()}")
        self.report(self.device(), elsewhere)
        self.assertEqual([], self.found(self.device(), elsewhere))

    def test_a_host_that_falls_silent_is_named_and_not_judged(self):
        backends.override(self, "report_interval", 1, "agent")
        verdict = hosts.compare(self.backend)
        self.assertEqual([], verdict.differences)
        self.assertRegex(verdict.not_compared[0], "^Host h1: its agent has not reported since")

    def test_a_host_whose_agent_is_away_is_named(self):
        with mock.patch.object(models, "now", return_value=datetime.datetime(2020, 1, 1)):  # noqa: DTZ001
            self.report()
        backends.override(self, "report_interval", 1, "agent")
        verdict = hosts.compare(self.backend)
        self.assertEqual([], verdict.differences)
        self.assertIn("2020-01-01", verdict.not_compared[0])

    def test_a_host_that_nobody_knows_any_more_is_named(self):
        agents._delete("h1")
        backends.override(self, "report_interval", 1, "agent")
        (told,) = hosts.compare(self.backend).not_compared
        self.assertIn("h1", told)

    def test_attachments_without_an_agent_are_nobody_s(self):
        rows.change_attachment(self.row["id"], agent=None)
        self.assertEqual([], self.found())
