# SPDX-License-Identifier: Apache-2.0
"""A manager process listens to agents until it is stopped, whether the message queue answers."""

import threading
from typing import Any
import unittest
from unittest import mock

from oslo_messaging.rpc.dispatcher import ExpectedException

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.agents import store as agents
from attachd.manager.agents.rpc_server import POOL_SIZE, AgentEndpoint, AgentRpcServer
from attachd.rpc import agent_manager_api, manager_api
from attachd.tests import databases, rows
from attachd.tests.backends import override
from attachd.tests.wait import TIMEOUT


class DeskTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.server = mock.Mock()
        self.started = threading.Event()
        self.server.start.side_effect = lambda **_: self.started.set()
        patched = mock.patch("attachd.rpc.transport.get_server", return_value=self.server)
        self.made = patched.start()
        self.addCleanup(patched.stop)
        self.desk = AgentRpcServer()

    def test_all_processes_of_a_machine_share_a_queue(self):
        (endpoint, name, topic, patience) = self.made.call_args.args
        self.assertIsInstance(endpoint, AgentEndpoint)
        self.assertEqual((CONF.host, CONF.agent.registry_topic), (name, topic))
        self.assertEqual(agent_manager_api.TIMEOUT, patience)

    def test_it_listens_until_it_is_stopped(self):
        self.desk.start()
        self.assertTrue(self.started.wait(TIMEOUT))
        self.desk._thread.join(TIMEOUT)
        self.server.start.assert_called_once_with(override_pool_size=POOL_SIZE)
        self.server.stop.assert_not_called()
        self.desk.stop()
        self.assertEqual(["start", "stop", "wait"], [each[0] for each in self.server.mock_calls])

    def test_a_message_queue_that_does_not_answer_keeps_nobody_from_ending(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.server.start.side_effect = lambda **_: gate.wait(TIMEOUT)
        self.desk.start()
        self.desk.stop()
        self.server.stop.assert_not_called()
        gate.set()
        self.desk._thread.join(TIMEOUT)
        self.server.stop.assert_called_once_with()


HOST, OTHER = "compute-1", "compute-2"
KEY, OTHER_KEY = "k" * 43, "o" * 43
CONTEXT = RequestContext(overwrite=False)
SAID: dict[str, Any] = {
    "connector": {"host": HOST},
    "devices": [],
    "connector_type": "kernel",
    "version": "0.1.0",
    "error": None,
}
INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "s"}}
METHODS = {
    "connected": ("connected", {"device": "/dev/sdb"}, "attached"),
    "connect_failed": ("connected", {"error": "no session"}, "connected"),
    "disconnected": ("withdrawing", {}, "disconnecting"),
    "detach_refused": ("withdrawing", {"error": "mounted"}, "attached"),
}
"""What is said of an attachment in which state, and what becomes of it."""


class _Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        self.registry = AgentEndpoint()
        patched = mock.patch.object(manager_api, "process_pending")
        patched.start()
        self.addCleanup(patched.stop)
        self.volume = rows.add_volume()["id"]

    def add(self, state, **values):
        values = {"agent": HOST, "generation": 2, "connection_info": INFO, **values}
        return rows.add_attachment(self.volume, state, **values)["id"]

    def ask(self, method, host=HOST, key=KEY, **arguments):
        """Call as RPC does; raises what the caller would see."""
        try:
            return getattr(self.registry, method)(CONTEXT, host, key, **arguments)
        except ExpectedException as answer:
            raise answer.exc_info[1] from None

    def say(self, method, attachment_id, generation=2, **proof):
        arguments = {**METHODS[method][1], **proof}
        return self.ask(method, attachment_id=attachment_id, generation=generation, **arguments)


class ReportTest(_Case):
    def test_the_first_one_who_speaks_for_a_host_is_its_agent(self):
        self.assertEqual([], self.ask("report", report=SAID))
        self.assertEqual({"host": HOST}, agents.get(HOST)["connector"])
        with self.assertRaises(exception.Forbidden):
            self.ask("report", key=OTHER_KEY, report={**SAID, "connector_type": "forged"})
        self.assertEqual("kernel", agents.get(HOST)["connector_type"])

    def test_nobody_is_let_in_where_an_administrator_does_that(self):
        override(self, "allow_new", False, group="agent")
        with self.assertRaisesRegex(exception.Forbidden, f"attachd-manage agent add {HOST}"):
            self.ask("report", report=SAID)
        self.assertEqual([], agents.list_all())
        agents.create(HOST, KEY)
        self.assertEqual([], self.ask("report", report=SAID))

    def test_a_forgotten_host_with_attachments_is_not_left_to_who_speaks_first(self):
        self.ask("report", report=SAID)
        self.add("attached")
        agents._delete(HOST)
        with self.assertRaisesRegex(exception.Forbidden, f"attachments.*agent add {HOST}"):
            self.ask("report", key=OTHER_KEY, report=SAID)
        self.assertEqual([], agents.list_all())
        agents.create(HOST, OTHER_KEY)
        self.assertEqual(1, len(self.ask("report", key=OTHER_KEY, report=SAID)))

    def test_of_two_that_speak_first_at_the_same_time_one_is_let_in(self):
        def faster(host, _key):
            real(host, OTHER_KEY)
            return False

        real = agents.create
        with mock.patch.object(agents, "create", faster), self.assertRaises(exception.Forbidden):
            self.ask("report", report=SAID)

    def test_all_that_is_due_is_the_answer(self):
        agents.create(HOST, KEY)
        mine = [self.add("connected"), self.add("withdrawing")]
        self.add("connected", agent=OTHER)
        duties = self.ask("report", report=SAID)
        self.assertEqual(mine, [each["attachment_id"] for each in duties])

    def test_nonsense_makes_nobody_known(self):
        for host, key, said in (
            ("a b", KEY, SAID),
            (HOST, "short", SAID),
            (HOST, KEY, {**SAID, "devices": None}),
        ):
            with self.assertRaises(exception.InvalidInput):
                self.ask("report", host, key, report=said)
        self.assertEqual([], agents.list_all())


class DutyTest(_Case):
    def setUp(self):
        super().setUp()
        agents.create(HOST, KEY)
        agents.create(OTHER, OTHER_KEY)

    def test_it_tells_the_agent_of_the_host(self):
        mine = self.add("connected")
        self.assertEqual(mine, self.ask("desired_state", attachment_id=mine)["attachment_id"])

    def test_it_tells_nobody_else(self):
        mine = self.add("connected")
        self.assertIsNone(self.ask("desired_state", OTHER, OTHER_KEY, attachment_id=mine))
        for host, key in ((HOST, OTHER_KEY), (HOST, KEY + "k"), (OTHER, KEY)):
            with self.assertRaises(exception.Forbidden):
                self.ask("desired_state", host, key, attachment_id=mine)
        with self.assertRaises(exception.AgentNotFound):
            self.ask("desired_state", "nobody", KEY, attachment_id=mine)

    def test_nothing_is_due_for_what_is_gone(self):
        self.assertIsNone(self.ask("desired_state", attachment_id="gone"))
        self.assertIsNone(self.ask("desired_state", attachment_id=self.add("disconnecting")))


class SayingTest(_Case):
    def setUp(self):
        super().setUp()
        agents.create(HOST, KEY)
        agents.create(OTHER, OTHER_KEY)

    def test_the_agent_of_the_host_moves_its_attachments(self):
        for method, (state, _arguments, after) in METHODS.items():
            mine = self.add(state)
            self.say(method, mine)
            self.assertEqual(after, rows.attachment(mine)["state"], method)

    def test_nobody_else_does(self):
        proofs = (
            (exception.Forbidden, {"key": OTHER_KEY}),
            (exception.Forbidden, {"key": agents.digest(KEY)}),
            (exception.AgentNotFound, {"host": "nobody"}),
            (exception.InvalidTransition, {"host": OTHER, "key": OTHER_KEY}),
        )
        for method, (state, _arguments, _after) in METHODS.items():
            mine = self.add(state)
            before = rows.attachment(mine)
            for refusal, proof in proofs:
                with self.assertRaises(refusal, msg=(method, proof)):
                    self.say(method, mine, **proof)
            self.assertEqual(before, rows.attachment(mine), method)

    def test_what_was_decided_anew_is_not_undone_by_who_heard_less(self):
        for method, (state, _arguments, _after) in METHODS.items():
            mine = self.add(state)
            for generation in (1, 3):
                with self.assertRaises(exception.InvalidTransition, msg=method):
                    self.say(method, mine, generation)
            self.assertEqual((state, None), self.seen(mine), method)

    def seen(self, attachment_id):
        row = rows.attachment(attachment_id)
        return row["state"], row["error"]

    def test_what_is_gone_is_not_found(self):
        for method in METHODS:
            with self.assertRaises(exception.AttachmentNotFound, msg=method):
                self.say(method, "gone")

    def test_nonsense_is_refused_before_anybody_looks_at_rows(self):
        mine = self.add("connected")
        wrong = {"host": 7, "key": None, "attachment_id": [mine], "generation": "2"}
        for name, value in {**wrong, "device": "x" * 300}.items():
            said = {"attachment_id": mine, "generation": 2, "device": "/dev/sdb", name: value}
            with self.assertRaisesRegex(exception.InvalidInput, name):
                self.ask("connected", **said)
        with self.assertRaisesRegex(exception.InvalidInput, "error"):
            self.ask("connect_failed", attachment_id=mine, generation=2, error=7)
        with self.assertRaisesRegex(exception.InvalidInput, "attachment_id"):
            self.ask("desired_state", attachment_id="")
        self.assertEqual(("connected", None), self.seen(mine))
