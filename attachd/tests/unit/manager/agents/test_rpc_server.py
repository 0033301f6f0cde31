# SPDX-License-Identifier: Apache-2.0
"""The RPC server for agents: its life cycle, registration, desired state and results."""

import threading
import time
from typing import Any
import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_messaging.rpc.dispatcher import ExpectedException

from attachd import exception
from attachd.context import RequestContext
from attachd.db import host_fences, models
from attachd.db.agents import agent_store, machines
from attachd.manager.agents import desired_state, report_schema
from attachd.manager.agents.rpc_server import (
    ALL_HOSTS_INTERVAL,
    POOL_SIZE,
    AgentEndpoint,
    AgentRpcServer,
)
from attachd.rpc import agent_manager_api, agent_transport, desired_states, manager_api
from attachd.rpc.host_queues import HostQueues
from attachd.tests.fixtures import databases, db_rows, fake_agent, large_database
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.wait import TIMEOUT


class AgentRpcServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.hosts = self.enterContext(
            mock.patch.object(agent_store, "list_hosts", return_value=["a", "b"])
        )
        self.server = mock.Mock()
        self.started = threading.Event()
        self.server.start.side_effect = lambda **_: self.started.set()
        self.made = self.enterContext(
            mock.patch.object(agent_transport, "get_registry_server", return_value=self.server)
        )
        self.agent_server = AgentRpcServer()

    def test_server_is_that_of_registry(self):
        (endpoint, timeout, queues, _answer) = self.made.call_args.args
        self.assertIsInstance(queues, HostQueues)
        self.assertIsInstance(endpoint, AgentEndpoint)
        self.assertEqual(agent_manager_api.TIMEOUT, timeout)

    def test_server_reads_queues_of_all_hosts(self):
        with mock.patch.object(HostQueues, "serve") as served:
            self.agent_server.serve_hosts()
            ((hosts,),) = (call.args for call in served.call_args_list)
            self.assertEqual(["a", "b"], sorted(hosts))

    def test_names_of_all_hosts_are_read_first_and_then_those_of_new_ones(self):
        for _ in range(3):
            self.agent_server.serve_hosts()
        first, *others = [call.args[0] for call in self.hosts.call_args_list]
        self.assertIsNone(first)
        self.assertTrue(all(since < models.now() for since in others), others)
        later = time.monotonic() + ALL_HOSTS_INTERVAL + 1
        with mock.patch("attachd.manager.agents.rpc_server.time.monotonic", lambda: later):
            self.agent_server.serve_hosts()
        self.assertIsNone(self.hosts.call_args.args[0])

    def test_names_of_hosts_that_cannot_be_read_are_logged_once(self):
        with self.assertLogs("attachd.manager.agents.rpc_server", "WARNING") as logs:
            for _ in range(3):
                self.agent_server._log_failure(exception.Unavailable(reason="down"))
        self.assertEqual(1, len(logs.output))
        self.agent_server.serve_hosts()
        self.assertFalse(self.agent_server._is_failing)

    def test_server_listens_until_stop(self):
        self.agent_server.start()
        self.assertTrue(self.started.wait(TIMEOUT))
        self.agent_server._thread.join(TIMEOUT)
        self.server.start.assert_called_once_with(override_pool_size=POOL_SIZE)
        self.server.stop.assert_not_called()
        self.agent_server.stop()
        self.assertEqual(
            ["start", "stop", "wait"], [mock_call[0] for mock_call in self.server.mock_calls]
        )

    def test_server_that_cannot_be_started_has_failed(self):
        self.server.start.side_effect = messaging.MessageDeliveryFailure("queue limit")
        with self.assertLogs("attachd.manager.agents.rpc_server", "WARNING") as logs:
            self.agent_server.start()
            self.agent_server._thread.join(TIMEOUT)
        self.assertIn("queue limit", logs.output[0])
        self.assertTrue(self.agent_server.has_failed)
        self.assertFalse(self.agent_server.is_serving)
        self.agent_server.stop()
        self.server.stop.assert_not_called()

    def test_stop_with_message_queue_down_returns(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.server.start.side_effect = lambda **_: gate.wait(TIMEOUT)
        self.agent_server.start()
        self.agent_server.stop()
        self.server.stop.assert_not_called()
        gate.set()
        self.agent_server._thread.join(TIMEOUT)
        self.server.stop.assert_called_once_with()


HOST, OTHER = "compute-1", "compute-2"
OTHER_ID = "11111111-2222-4333-8444-555555555555"
KEY, OTHER_KEY = "k" * 43, "o" * 43
CONTEXT = RequestContext(overwrite=False)
SAID: Any = fake_agent.make_report(HOST, connector={"host": HOST})
INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "s"}}
METHODS = {
    "connected": ("connected", {"device": "/dev/sdb"}, "attached"),
    "failed": ("connected", {"error": "no session"}, "connected"),
    "disconnected": ("withdrawing", {}, "disconnecting"),
    "detach_refused": ("withdrawing", {"error": "mounted"}, "attached"),
}
"""The calls of agents: state before, call, state after."""


class _Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.endpoint = AgentEndpoint()
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.volume = db_rows.add_volume()["id"]

    def add(self, state, **values):
        values = {"agent": HOST, "generation": 2, "connection_info": INFO, **values}
        return db_rows.add_attachment(self.volume, state, **values)["id"]

    def register(self, host, key):
        """Register a host whose agent has reported."""
        agent_store.create(host, key)
        db_rows.change_agent(host, report_process=fake_agent.PROCESS)

    def ask(self, method, host=HOST, key=KEY, **arguments):
        """Call as RPC does; raise what the caller would receive."""
        if method not in {"report", "renew"}:
            arguments = {"process": fake_agent.PROCESS, **arguments}
        try:
            return getattr(self.endpoint, method)(CONTEXT, host, key, **arguments)
        except ExpectedException as answer:
            raise answer.exc_info[1] from None

    def say(self, method, attachment_id, generation=2, **proof):
        arguments = {**METHODS[method][1], **proof}
        return self.ask(method, attachment_id=attachment_id, generation=generation, **arguments)


class RenewTest(_Case):
    """Reports that nothing is new."""

    def setUp(self):
        super().setUp()
        agent_store.create(HOST, KEY)
        self.attachment_id = self.add("attached")
        self.number = 0
        self.report()

    def token(self):
        self.number += 1
        return {**fake_agent.TOKEN, "number": self.number}

    def report(self, **values):
        """Send a whole report, and keep what an agent keeps of it."""
        said = {**SAID, "stops_writers": True, "token": self.token(), **values}
        self.desired = self.ask("report", report=said)
        self.content_number = self.number

    def renew(self, **values):
        said = {
            "content_number": self.content_number,
            "desired": desired_states.digest(self.desired),
            "boot_id": SAID["boot_id"],
            "lease": None,
            "machine_id": None,
            "token": self.token(),
            **values,
        }
        return self.ask("renew", renewal=said)

    def test_renewal_with_nothing_new_stores_its_time_and_number(self):
        before = agent_store.get(HOST)
        self.assertIs(True, self.renew())
        after = agent_store.get(HOST)
        self.assertGreater(after["heartbeat_at"], before["heartbeat_at"])
        self.assertGreater(after["silent_at"], before["silent_at"])
        self.assertGreater(after["seen_at"], before["seen_at"])
        self.assertEqual(self.number, after["report_number"])
        kept = ("connector", "devices", "content_number", "initiators", "lease")
        self.assertEqual([before[name] for name in kept], [after[name] for name in kept])
        self.assertIs(True, self.renew())

    def test_renewal_takes_three_reads_and_one_write(self):
        with large_database.record_statements() as found:
            self.renew()
        words = [statement.split()[0] for statement, _parameters in found]
        self.assertEqual(["SELECT", "SELECT", "SELECT", "UPDATE"], words)

    def test_renewal_with_new_attachment_or_state_is_refused(self):
        self.add("connected")
        before = agent_store.get(HOST)
        self.assertIs(False, self.renew())
        self.assertEqual(before["heartbeat_at"], agent_store.get(HOST)["heartbeat_at"])
        self.report()
        self.assertIs(True, self.renew())
        db_rows.change_attachment(self.attachment_id, state="withdrawing")
        self.assertIs(False, self.renew())

    def test_renewal_of_other_report_or_process_is_refused(self):
        self.assertIs(False, self.renew(content_number=self.content_number + 1))
        other = {**self.token(), "process": "o" * 32, "start": 2}
        self.assertIs(False, self.renew(token=other))

    def test_renewal_with_other_lease_is_refused(self):
        self.assertIs(False, self.renew(lease=30))

    def test_renewal_of_fenced_host_is_refused(self):
        host_fences.fence(HOST, "dead", None)
        self.assertIs(False, self.renew())
        host_fences.lift(HOST)
        self.assertIs(True, self.renew())
        host_fences.fence(f"{HOST}.example.org", "dead", None)
        self.assertIs(False, self.renew())

    def test_renewal_while_other_hosts_are_fenced_is_accepted(self):
        host_fences.fence(OTHER, "dead", None)
        self.assertIs(True, self.renew())

    def test_renewal_of_lost_host_is_refused(self):
        db_rows.change_agent(HOST, lost_at=models.now(), lost_action="mark")
        self.assertIs(False, self.renew())

    def test_renewal_while_another_machine_reports_is_refused(self):
        other = {"boot_id": "b", "since": "now", **fake_agent.TOKEN}
        db_rows.change_agent(HOST, conflict=other)
        self.assertIs(False, self.renew())

    def test_older_renewal_is_refused_as_old(self):
        self.renew()
        old = {**fake_agent.TOKEN, "number": self.number - 1}
        with self.assertRaises(exception.OldReport):
            self.renew(token=old)

    def test_renewal_that_another_report_overtakes_is_refused(self):
        with mock.patch.object(machines, "accept", side_effect=machines.Changed):
            self.assertIs(False, self.renew())
        real = desired_state.list_desired

        def overtaken(host):
            db_rows.change_agent(HOST, report_number=self.number + 7)
            return real(host)

        with mock.patch.object(desired_state, "list_desired", overtaken):
            self.assertIs(False, self.renew())

    def test_renewal_with_wrong_key_or_form_is_refused(self):
        with self.assertRaises(exception.InvalidInput):
            self.renew(desired="x")
        with self.assertRaises(exception.Forbidden):
            self.ask("renew", key=OTHER_KEY, renewal={})

    def test_report_without_accepted_initiators_is_to_be_repeated(self):
        fake_agent.report_agent(OTHER, connector=fake_agent.make_report(OTHER)["connector"])
        theirs = {**fake_agent.make_report(OTHER)["connector"], "host": HOST}
        self.report(connector=theirs)
        self.assertIsNone(agent_store.get(HOST)["connector"])
        self.assertIs(False, self.renew())


class ReportTest(_Case):
    def test_report_of_first_caller_registers_host_if_allowed(self):
        override(self, "allow_new", True, group="agent")
        self.assertEqual([], self.ask("report", report=SAID))
        self.assertEqual({"host": HOST}, agent_store.get(HOST)["connector"])
        with self.assertRaises(exception.Forbidden):
            self.ask("report", key=OTHER_KEY, report={**SAID, "connector_type": "forged"})
        self.assertEqual("kernel", agent_store.get(HOST)["connector_type"])

    def test_report_of_new_host_by_default_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, f"attachd-manage agent add {HOST}"):
            self.ask("report", report=SAID)
        self.assertEqual([], agent_store.list_all())
        agent_store.create(HOST, KEY)
        self.assertEqual([], self.ask("report", report=SAID))

    def test_report_of_unregistered_host_with_attachments_is_forbidden(self):
        override(self, "allow_new", True, group="agent")
        self.ask("report", report=SAID)
        self.add("attached")
        agent_store._delete(HOST)
        with self.assertRaisesRegex(exception.Forbidden, f"attachments.*agent add {HOST}"):
            self.ask("report", key=OTHER_KEY, report=SAID)
        self.assertEqual([], agent_store.list_all())
        agent_store.create(HOST, OTHER_KEY)
        self.assertEqual(1, len(self.ask("report", key=OTHER_KEY, report=SAID)))

    def test_report_of_two_first_callers_registers_one(self):
        override(self, "allow_new", True, group="agent")

        def faster(host, _key):
            real(host, OTHER_KEY)
            return False

        real = agent_store.create
        with (
            mock.patch.object(agent_store, "create", faster),
            self.assertRaises(exception.Forbidden),
        ):
            self.ask("report", report=SAID)

    def test_report_returns_desired_state(self):
        agent_store.create(HOST, KEY)
        attachment_id = [self.add("connected"), self.add("withdrawing")]
        self.add("connected", agent=OTHER)
        desired_states = self.ask("report", report=SAID)
        self.assertEqual(
            attachment_id, [desired_state["attachment_id"] for desired_state in desired_states]
        )

    def test_report_stores_devices_without_attachment_apart(self):
        agent_store.create(HOST, KEY)
        device = {"volume_id": OTHER_ID, "path": "/dev/sdb", "size_bytes": 1}
        known, gone = (
            {**device, "attachment_id": id_} for id_ in (self.add("attached"), OTHER_ID)
        )
        for devices, orphans in (([known], None), ([known, gone], [gone])):
            self.ask("report", report={**SAID, "devices": devices})
            self.assertEqual(orphans, agent_store.get(HOST)["orphan_devices"])

    def test_report_with_invalid_values_registers_no_host(self):
        override(self, "allow_new", True, group="agent")
        for host, key, said in (
            ("a b", KEY, SAID),
            (HOST, "short", SAID),
            (HOST, KEY, {**SAID, "devices": None}),
        ):
            with self.assertRaises(exception.InvalidInput):
                self.ask("report", host, key, report=said)
        self.assertEqual([], agent_store.list_all())

    def test_report_with_wrong_key_is_refused_before_its_values_are_read(self):
        agent_store.create(HOST, KEY)
        with (
            mock.patch.object(report_schema, "check_report") as checked,
            self.assertRaises(exception.Forbidden),
        ):
            self.ask("report", key=OTHER_KEY, report={})
        checked.assert_not_called()


class DesiredStateTest(_Case):
    def setUp(self):
        super().setUp()
        self.register(HOST, KEY)
        self.register(OTHER, OTHER_KEY)

    def test_desired_state_for_agent_of_host_is_returned(self):
        attachment_id = self.add("connected")
        self.assertEqual(
            attachment_id, self.ask("desired_state", attachment_id=attachment_id)["attachment_id"]
        )

    def test_desired_state_for_other_caller_is_forbidden(self):
        attachment_id = self.add("connected")
        self.assertIsNone(self.ask("desired_state", OTHER, OTHER_KEY, attachment_id=attachment_id))
        for host, key in ((HOST, OTHER_KEY), (HOST, KEY + "k"), (OTHER, KEY)):
            with self.assertRaises(exception.Forbidden):
                self.ask("desired_state", host, key, attachment_id=attachment_id)
        with self.assertRaises(exception.AgentNotFound):
            self.ask("desired_state", "unknown", KEY, attachment_id=attachment_id)

    def test_outage_is_noted_for_errors_of_the_database_alone(self):
        for error, is_outage in (
            (exception.SecretUnreadable(reason="no key"), False),
            (exception.TakenOver(kind="volume", id="v"), False),
            (exception.DatabaseUnavailable(reason="down"), True),
        ):
            with (
                mock.patch.object(desired_state, "get_desired", side_effect=error),
                self.assertRaises(type(error)),
            ):
                self.ask("desired_state", attachment_id="a")
            self.assertEqual(is_outage, self.endpoint.outage.is_set(), error)

    def test_desired_state_of_missing_attachment_is_none(self):
        self.assertIsNone(self.ask("desired_state", attachment_id="gone"))
        self.assertIsNone(self.ask("desired_state", attachment_id=self.add("disconnecting")))


class ResultsTest(_Case):
    def setUp(self):
        super().setUp()
        self.register(HOST, KEY)
        self.register(OTHER, OTHER_KEY)

    def test_results_of_agent_move_its_attachments(self):
        for method, (state, _arguments, after) in METHODS.items():
            attachment_id = self.add(state)
            self.say(method, attachment_id)
            self.assertEqual(after, db_rows.get_attachment(attachment_id)["state"], method)

    def test_results_of_other_caller_are_forbidden(self):
        proofs = (
            (exception.Forbidden, {"key": OTHER_KEY}),
            (exception.Forbidden, {"key": agent_store.digest(KEY)}),
            (exception.AgentNotFound, {"host": "unknown"}),
            (exception.InvalidTransition, {"host": OTHER, "key": OTHER_KEY}),
        )
        for method, (state, _arguments, _after) in METHODS.items():
            attachment_id = self.add(state)
            before = db_rows.get_attachment(attachment_id)
            for refusal, proof in proofs:
                with self.assertRaises(refusal, msg=(method, proof)):
                    self.say(method, attachment_id, **proof)
            self.assertEqual(before, db_rows.get_attachment(attachment_id), method)

    def test_results_of_another_process_are_refused(self):
        for method, (state, _arguments, _after) in METHODS.items():
            attachment_id = self.add(state)
            with self.assertRaisesRegex(exception.Conflict, "no accepted report"):
                self.say(method, attachment_id, process="q" * 32)
            self.assertEqual((state, None), self.seen(attachment_id), method)

    def test_results_with_old_generation_are_refused(self):
        for method, (state, _arguments, _after) in METHODS.items():
            attachment_id = self.add(state)
            for generation in (1, 3):
                with self.assertRaises(exception.InvalidTransition, msg=method):
                    self.say(method, attachment_id, generation)
            self.assertEqual((state, None), self.seen(attachment_id), method)

    def seen(self, attachment_id):
        row = db_rows.get_attachment(attachment_id)
        return row["state"], row["error"]

    def test_results_of_missing_attachment_are_not_found(self):
        for method in METHODS:
            with self.assertRaises(exception.AttachmentNotFound, msg=method):
                self.say(method, "gone")

    def test_results_with_invalid_values_are_refused_before_rows_are_read(self):
        attachment_id = self.add("connected")
        wrong = {"host": 7, "key": None, "attachment_id": [attachment_id], "generation": "2"}
        for name, value in {**wrong, "device": "x" * 300}.items():
            said = {
                "attachment_id": attachment_id,
                "generation": 2,
                "device": "/dev/sdb",
                name: value,
            }
            with self.assertRaisesRegex(exception.InvalidInput, name):
                self.ask("connected", **said)
        with self.assertRaisesRegex(exception.InvalidInput, "error"):
            self.ask("failed", attachment_id=attachment_id, generation=2, error=7)
        with self.assertRaisesRegex(exception.InvalidInput, "attachment_id"):
            self.ask("desired_state", attachment_id="")
        self.assertEqual(("connected", None), self.seen(attachment_id))
