# SPDX-License-Identifier: Apache-2.0
"""The question to a host whether it still has a device of an attachment that is deleted."""

import datetime
from typing import Any
from unittest import mock

from attachd import exception
from attachd.api.agents import device_check
from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.engine import session
from attachd.objects import Attachment
from attachd.rpc import agent_api, bulkheads
from attachd.tests.fixtures import api_context, db_rows, fake_agent
from attachd.tests.fixtures.conf_fixture import override

HOST = "compute-1"
IQN = f"iqn.2026-01.org.example:{HOST}"
LOGGER = "attachd.api.agents.device_check"


class DeviceCheckTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        self.attachment = self.add()
        self.devices: list[dict[str, Any]] = []
        self.ask = self.enterContext(mock.patch.object(agent_api, "report"))
        self.ask.side_effect = self.answer
        self.enterContext(mock.patch.object(device_check, "TIMEOUT", 0.1))
        self.time = 1000.0
        self.enterContext(mock.patch.object(device_check, "monotonic", lambda: self.time))
        self.enterContext(mock.patch.object(device_check, "_absence", device_check._Absence()))
        fake_agent.report_agent(HOST, observed={"devices": [], "asked": []})

    def answer(self, _ctx, host, request_id):
        """Report as the agent does: it also answers a request of another process."""
        observed = {"devices": self.devices, "asked": ["0" * 32, request_id]}
        db_rows.change_agent(host, observed=observed)

    def device(self, **values):
        fields = {"volume_id": self.volume, "attachment_id": None, "target": "t"}
        return {**fields, "path": "/dev/sdb", "size_bytes": 1, **values}

    def add(self, state="attached", **values):
        connector = {"host": HOST, "initiator": IQN}
        values = {"connector": connector, "host": HOST, **values}
        return db_rows.add_attachment(self.volume, state, **values)["id"]

    def check(self, attachment_id=None):
        device_check.check_attachment(
            self.ctx, Attachment.get(self.ctx, attachment_id or self.attachment)
        )

    def refused(self, attachment_id=None):
        with (
            self.assertLogs(LOGGER, "WARNING"),
            self.assertRaises(exception.DevicePresent) as raised,
        ):
            self.check(attachment_id)
        return raised.exception

    def test_check_with_present_device_raises_with_host_device_and_remedies(self):
        self.devices = [self.device()]
        message = str(self.refused())
        for part in (HOST, "/dev/sdb", self.volume, "host fence compute-1", "force=true"):
            self.assertIn(part, message)

    def test_check_without_device_passes(self):
        other = self.device(volume_id="another")
        for devices in ([], [other], [self.device(path=None, size_bytes=None)]):
            self.devices = devices
            self.check()
        self.assertEqual(3, self.ask.call_count)

    def test_check_uses_only_a_report_made_after_the_question(self):
        db_rows.change_agent(HOST, observed={"devices": [self.device()], "asked": ["0" * 32]})
        self.check()
        self.devices = [self.device()]
        self.refused()

    def test_check_without_answer_passes_in_time_with_a_warning(self):
        db_rows.change_agent(HOST, observed={"devices": [self.device()], "asked": []})
        for trouble in (
            lambda *_: None,
            exception.AgentUnavailable(host=HOST, since="now"),
            exception.Unavailable(reason="no message queue"),
        ):
            self.ask.side_effect = trouble
            with self.assertLogs(LOGGER, "WARNING") as logged:
                self.check()
            self.assertIn(f"host {HOST} does not say", logged.output[0])

    def test_check_of_agent_that_is_removed_meanwhile_passes(self):
        self.ask.side_effect = lambda *_: agent_store.force_delete(HOST)
        with self.assertLogs(LOGGER, "WARNING"):
            self.check()

    def test_check_that_would_exceed_a_limit_of_the_volume_raises(self):
        error = exception.TooManyCalls(reason="Volume v has too many calls.")
        with (
            mock.patch.object(bulkheads, "slot", side_effect=error),
            self.assertRaises(exception.TooManyCalls),
        ):
            self.check()

    def test_check_asks_no_host_that_cannot_answer(self):
        for case, values in (
            ("silent", {"seen_at": models.now() - datetime.timedelta(hours=1)}),
            ("two machines", {"conflict": {"boot_id": "b"}}),
            ("not able", {"observed": None}),
        ):
            db_rows.change_agent(HOST, **values)
            self.check()
            self.assertEqual(0, self.ask.call_count, case)
            fake_agent.report_agent(HOST, observed={"devices": [], "asked": []})
            db_rows.change_agent(HOST, conflict=None)
            self.time += device_check.ABSENCE_TTL

    def test_check_asks_nothing_about_states_without_access_and_about_devices_of_agents(self):
        before = session.counters().statements
        for state, values in (
            ("reserved", {"connector": None, "host": None}),
            ("connect_failed", {}),
            ("disconnect_failed", {}),
            ("attached", {"agent": HOST}),
        ):
            attachment = Attachment.get(self.ctx, self.add(state, **values))
            before = session.counters().statements
            device_check.check_attachment(self.ctx, attachment)
            self.assertEqual(before, session.counters().statements, state)
        self.ask.assert_not_called()

    def test_check_of_host_without_agent_takes_one_statement(self):
        other = Attachment.get(self.ctx, self.add(connector={"host": "c9"}, host="c9"))
        device_check.check_attachment(self.ctx, other)  # It reads whether there are agents, too.
        before = session.counters().statements
        device_check.check_attachment(self.ctx, other)
        self.assertEqual(1, session.counters().statements - before)
        override(self, "enabled", False, "agent")
        device_check.check_attachment(self.ctx, other)
        self.assertEqual(1, session.counters().statements - before)
        self.ask.assert_not_called()

    def test_check_without_any_agent_takes_no_statement_for_a_while(self):
        db_rows.change_agent(HOST, observed=None)
        self.check()
        attachment = Attachment.get(self.ctx, self.attachment)
        before = session.counters().statements
        for _ in range(3):
            device_check.check_attachment(self.ctx, attachment)
        self.assertEqual(before, session.counters().statements)
        self.devices = [self.device()]
        db_rows.change_agent(HOST, observed={"devices": [], "asked": []})
        self.time += device_check.ABSENCE_TTL
        self.refused()

    def test_device_of_another_attachment_of_the_host_is_kept_for_it(self):
        self.devices = [self.device()]
        second = self.add(instance_uuid="s2")
        self.check()
        self.devices = [self.device(attachment_id=second)]
        self.check()
        self.refused(second)

    def test_attachments_of_other_hosts_keep_no_device_here(self):
        self.devices = [self.device()]
        self.add(connector={"host": "c9", "initiator": "iqn.2026-01.org.example:c9"}, host="c9")
        self.add("reserved", connector=None, host=None)
        self.add("connect_failed")
        self.refused()

    def test_other_host_cannot_keep_an_attachment(self):
        fake_agent.report_agent(
            "mallory", observed={"devices": [self.device()], "asked": ["0" * 32]}
        )
        self.check()
        self.ask.assert_called_once_with(self.ctx, HOST, mock.ANY)

    def test_connection_of_older_calls_is_checked_if_it_is_the_only_one(self):
        self.devices = [self.device()]
        db_rows.remove_attachment(self.attachment)
        rows = [db_rows.get_attachment(self.add("connected", kind="connection")) for _ in range(2)]
        device_check.check_connections(self.ctx, rows)
        self.ask.assert_not_called()
        db_rows.remove_attachment(rows[1]["id"])
        lacking = {name: value for name, value in rows[0].items() if name != "connector"}
        with (
            self.assertLogs(LOGGER, "WARNING"),
            self.assertRaises(exception.DevicePresent),
        ):
            device_check.check_connections(self.ctx, [lacking])
