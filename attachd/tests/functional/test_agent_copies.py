# SPDX-License-Identifier: Apache-2.0
"""Two machines with the key of one agent, over RabbitMQ: copies of a disk, and lost journals."""

import datetime
import functools
import os
import shutil
import unittest
from unittest import mock

from oslo_messaging.rpc.dispatcher import ExpectedException

from attachd import exception
from attachd.agent import report_tokens
from attachd.agent.report_tokens import ReportTokens
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.agents import accept_machine, agent_store
from attachd.manager.agents.rpc_server import AgentEndpoint
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows, fake_agent
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.functional.test_agents import AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

REPEATS = 10


@full_only("agents")
class CopiedHostTest(AgentCase):
    """A volume whose device is in use, and a copy of the machine."""

    def setUp(self):
        super().setUp()
        self.host.set_boot_id("first")
        self.agent = self.host.start()

    def state(self):
        return self.deployment.agent(self.host.name)["state"]

    def wait_for_reports(self, number=3):
        for _ in range(number):
            before = self.last_seen()
            wait_until(lambda before=before: self.last_seen() != before)

    def last_seen(self):
        return self.deployment.agent(self.host.name)["last_seen"]

    def assert_no_detach_of_device_in_use(self, attachment_id):
        device = self.host.device(attachment_id)
        file = os.open(device, os.O_RDONLY)
        self.addCleanup(os.close, file)
        for _ in range(REPEATS):
            answer = self.deployment.detach(attachment_id)
            self.assertEqual(409, answer.status_code, answer.text)
            self.assertIn("agent accept", answer.text)
        self.assertEqual("in-use", self.deployment.volume(self.volume)["status"])
        self.assertTrue(device.exists())

    def test_detach_of_device_in_use_with_a_copied_machine_is_refused(self):
        attachment_id = self.attach()
        other = self.host.copy(self, "second")
        log = other.spawn()
        wait_until(lambda: self.state() == "conflict", lambda: log.output)
        self.assert_no_detach_of_device_in_use(attachment_id)
        wait_until(lambda: "Two machines report as the agent" in log.output, lambda: log.output)
        self.assertNotIn("serves requests", log.output)
        self.assertIn("two machines report as its agent", self.deployment.manager.output)
        answer = self.deployment.attach(self.deployment.create_volume(), self.host.name)
        self.assertEqual(409, answer.status_code, answer.text)

    def test_detach_of_device_in_use_with_a_copy_that_has_no_journal_is_refused(self):
        attachment_id = self.attach()
        other = self.host.copy(self, "second")
        shutil.rmtree(other.folder / "attachments")
        log = other.spawn()
        wait_until(lambda: self.state() == "conflict", lambda: log.output)
        self.assert_no_detach_of_device_in_use(attachment_id)

    def test_restarted_agent_and_machine_are_no_conflict(self):
        attachment_id = self.attach()
        for boot_id in ("first", "second"):
            self.host.reboot()
            self.host.set_boot_id(boot_id)
            self.host.start()
            wait_until(self.host.loops)
            self.wait_for_reports()
            self.assertEqual("up", self.state())
            self.wait_for(attachment_id, "attached")
        self.detach(attachment_id)

    def test_device_of_lost_journal_is_not_proved_until_the_host_is_started_again(self):
        attachment_id = self.attach()
        self.agent.kill()
        shutil.rmtree(self.host.folder / "attachments")
        self.host.start()
        self.wait_for_reports()
        for _ in range(2):
            answer = self.deployment.detach(attachment_id)
            self.assertNotEqual(200, answer.status_code, answer.text)
            self.assertIn("has lost its journal", answer.text)
        self.assertEqual("detaching", self.deployment.volume(self.volume)["status"])

    def accept(self, *arguments):
        return self.deployment.run(
            "attachd-manage",
            self.deployment.config_argument,
            *("agent", "accept", self.host.name, *arguments),
            codes=(0, 1),
        )

    def test_chosen_machine_goes_on_and_the_other_is_refused(self):
        attachment_id = self.attach()
        other = self.host.copy(self, "second")
        log = other.spawn()
        wait_until(lambda: self.state() == "conflict", lambda: log.output)
        # It would be the machine without the device.
        self.assertEqual("", self.accept("--boot", "second"))
        self.assertEqual("conflict", self.state())
        self.assertIn("boot first", self.accept("--boot", "first"))
        wait_until(lambda: "an administrator has chosen it" in log.output, lambda: log.output)
        self.wait_for_reports()
        self.assertEqual("up", self.state())
        self.assertEqual(attachment_id, self.host.entries()[0].attachment_id)
        self.detach(attachment_id)

    def test_key_moves_to_the_next_machine_that_reports(self):
        other = self.host.copy(self, "second")
        self.assertIn("the next machine", self.accept())
        other.start()
        wait_until(lambda: "an administrator has chosen it" in self.host.log, self.log_of_host)
        answer = self.deployment.attach(self.volume, self.host.name)
        self.assertEqual(200, answer.status_code, answer.text)
        attachment_id = answer.json()["attachment"]["id"]
        self.assertEqual([], self.host.entries())
        self.assertEqual(attachment_id, other.entries()[0].attachment_id)
        self.assertEqual(200, self.deployment.detach(attachment_id).status_code)

    def log_of_host(self):
        return self.host.log

    def test_machine_with_a_journal_of_a_backup_is_in_conflict_until_it_is_accepted(self):
        backup = self.host.top / "backup"
        shutil.copytree(self.host.folder / "attachments", backup)
        attachment_id = self.attach()
        for _ in range(2):
            self.host.reboot()
            self.host.start()
            self.wait_for_reports(8)
        self.host.reboot()
        shutil.rmtree(self.host.folder / "attachments")
        shutil.copytree(backup, self.host.folder / "attachments")
        self.host.set_boot_id("second")
        self.host.spawn()
        wait_until(lambda: self.state() == "conflict", self.log_of_host)
        self.assertEqual(409, self.deployment.detach(attachment_id).status_code)
        self.assertIn("boot second", self.accept("--boot", "second", "--devices-gone"))
        wait_until(lambda: self.state() == "up", self.log_of_host)
        self.detach(attachment_id)


class ReportRaceOnSqlite(unittest.TestCase):
    """Reports of a machine and of its copy at the same time, to several managers."""

    kind = "sqlite"
    host, key = "node-1", "k" * 43

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        agent_store.create(self.host, self.key)
        self.enterContext(mock.patch.object(report_tokens, "INTERVAL", 0.0))
        folders = [temp_dir(self) / name for name in ("first", "second")]
        first = ReportTokens(folders[0], self.host)
        self.assertTrue(self.report(first, "first"))
        shutil.copytree(folders[0], folders[1])
        self.machines = {"first": first, "second": ReportTokens(folders[1], self.host)}
        long_ago = models.now() - datetime.timedelta(seconds=60)
        db_rows.change_agent(self.host, heartbeat_at=long_ago)

    def report(self, tokens, boot_id):
        """Report as an agent does; return whether that was accepted."""
        tokens.store()
        token = tokens.take()
        error = self.send(token, boot_id)
        if error is None:
            tokens.record_accepted(token)
        elif isinstance(error, exception.EarlyRestart):
            tokens.record_early(error.details["report"])
        elif isinstance(error, exception.OldReport):
            tokens.record_old(error.details["start"])
        else:
            self.assertIsInstance(error, exception.AgentConflict)
        return error is None

    def send(self, token, boot_id):
        """Send a report; return the error of the answer."""
        said = fake_agent.make_report(
            self.host, connector=None, boot_id=boot_id, machine_id="m", token=token
        )
        try:
            AgentEndpoint().report(RequestContext(overwrite=False), self.host, self.key, said)
        except ExpectedException as answer:
            return answer.exc_info[1]
        return None

    def report_at_once(self):
        calls = [
            functools.partial(self.report, tokens, boot_id)
            for boot_id, tokens in self.machines.items()
        ]
        return concurrency.run_at_once(*calls)

    def test_one_machine_stays_and_the_other_is_found(self):
        for _ in range(8):
            self.report_at_once()
        row = agent_store.get(self.host)
        self.assertEqual("conflict", agent_store.state(row))
        expected = [row["boot_id"] == "first", row["boot_id"] == "second"]
        for _ in range(4):
            self.assertEqual(expected, self.report_at_once())
        self.assertNotEqual(row["boot_id"], agent_store.get(self.host)["conflict"]["boot_id"])
        accept_machine.accept(self.host, "second", devices_gone=False)
        self.machines["second"].store()
        self.assertTrue(self.report(self.machines["second"], "second"))

    def test_delayed_reports_of_one_machine_at_once_are_no_conflict(self):
        tokens = self.machines["first"]
        for _ in range(6):
            tokens.store()
            sent = [tokens.take() for _ in range(6)]
            calls = [functools.partial(self.send, token, "first") for token in sent]
            answers = concurrency.run_at_once(*calls)
            self.assertIsNone(answers[-1])
            tokens.record_accepted(sent[-1])
            self.assertIsNone(agent_store.get(self.host)["conflict"])
            self.assertEqual(sent[-1]["number"], agent_store.get(self.host)["report_number"])


class ReportRaceOnMariadb(ReportRaceOnSqlite):
    """The same with locks of rows."""

    kind = "mariadb"


class ReportRaceOnPostgresql(ReportRaceOnSqlite):
    """The same with rows in several versions."""

    kind = "postgresql"
