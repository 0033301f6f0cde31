# SPDX-License-Identifier: Apache-2.0
"""Hosts that do not do what they are told, or are told in another way, or later."""

from unittest import mock

from attachd import context, exception
from attachd.conf import CONF
from attachd.manager.agents import rpc_server
from attachd.manager.ha.recovery import RecoveryLoop
from attachd.rpc import agent_api
from attachd.tests.fixtures import db_rows, fake_agent
from attachd.tests.functional.host_attach_case import HOST, LATER, HostAttachCase
from attachd.tests.wait import TIMEOUT, wait_until


class UnwillingTest(HostAttachCase):
    """Hosts that are busy, fail or are silent."""

    def test_a_host_that_cannot_leaves_nothing(self):
        self.agent.is_failing = True
        answer = self.post()
        self.assertEqual((500, fake_agent.NO_SESSION), (answer.status, answer.fault))
        self.assert_nothing_left()

    def test_what_the_backend_does_not_take_back_is_named(self):
        self.agent.is_failing = True
        with self.driver.failing("revoke"):
            answer = self.post()
        identity = self.only()["id"]
        self.assertEqual(500, answer.status)
        for part in (fake_agent.NO_SESSION, "The shelf burns", f"DELETE /attachments/{identity}"):
            self.assertIn(part, answer.fault)
        self.assertEqual(200, self.delete(identity).status)
        self.assert_nothing_left()

    def test_a_backend_that_lets_nobody_in_is_no_matter_of_the_agent(self):
        with self.driver.failing("grant", final=True):
            answer = self.post()
        self.assertEqual(500, answer.status, answer.raw)
        self.assertEqual([], self.agent.told)
        self.assertEqual(200, self.delete(self.only()["id"]).status)
        self.assert_nothing_left()

    def test_a_busy_host_keeps_its_device_and_its_access(self):
        identity = self.attached()
        self.agent.is_busy = True
        answer = self.delete(identity)
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn(fake_agent.BUSY, answer.fault)
        self.assert_attached(identity)
        self.assertIn(fake_agent.BUSY, self.only()["error"])
        self.assertEqual(202, self.delete(identity, **LATER).status)
        wait_until(lambda: self.only()["error"] is not None)
        self.assert_attached(identity)
        self.agent.is_busy = False
        self.assertEqual(200, self.delete(identity).status)
        self.assert_nothing_left()

    def test_a_silent_host_is_detaching_until_it_has_let_go(self):
        identity = self.attached()
        self.agent.give_up_soon(self)
        answer = self.delete(identity)
        self.assertEqual(504, answer.status, answer.raw)
        self.assertEqual("withdrawing", self.only()["state"])
        self.assertEqual("detaching", db_rows.get_volume(self.volume)["status"])
        RecoveryLoop(self.api.backend).run_once()
        self.assertEqual({identity}, self.driver.granted())
        CONF.set_override("work_timeout", int(TIMEOUT), "agent")
        self.agent.hear()
        self.assertEqual(200, self.delete(identity).status)
        self.assert_nothing_left()

    def test_a_host_whose_agent_is_away_keeps_its_access_unless_by_force(self):
        identity = self.attached()
        fake_agent.expire_heartbeat(HOST)
        for options in ({}, LATER):
            answer = self.delete(identity, **options)
            self.assertEqual(409, answer.status, answer.raw)
            self.assertIn(f"{identity}?force=true", answer.fault)
        self.assert_attached(identity)
        self.assertEqual(200, self.delete(identity, "?force=true").status)
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], db_rows.list_attachments())

    def test_an_agent_without_a_queue_is_away(self):
        fake_agent.report_agent("node-2")
        answer = self.post(fields={"host": "node-2"})
        self.assertEqual(409, answer.status, answer.raw)
        identity = self.only()["id"]
        self.assertIn(identity, answer.fault)
        answer = self.delete(identity)
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn("is detaching", answer.fault)
        self.assertEqual("withdrawing", self.only()["state"])

    def test_without_a_message_queue_it_waits_for_the_agent(self):
        away = exception.Unavailable(reason="The message queue does not answer.")
        with mock.patch.object(agent_api, "reconcile", side_effect=away):
            answer = self.post()
            self.assertEqual(503, answer.status, answer.raw)
            identity = self.only()["id"]
            self.assertIn(identity, answer.fault)
        self.agent.work()
        self.assert_attached(identity)


class LaterTest(HostAttachCase):
    def test_nobody_waits(self):
        answer = self.post(**LATER)
        self.assertEqual(202, answer.status, answer.raw)
        identity = answer.body["attachment"]["id"]
        wait_until(lambda: self.only()["state"] == "attached")
        self.assert_attached(identity)
        answer = self.delete(identity, **LATER)
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual("detaching", answer.body["attachment"]["status"])
        self.recover_until_gone()
        self.assert_nothing_left()

    def test_an_agent_that_hears_nothing_finds_it(self):
        deaf = exception.AgentUnavailable(host=HOST, since="yet")
        with mock.patch.object(agent_api, "request_reconcile", side_effect=deaf):
            identity = self.post(**LATER).body["attachment"]["id"]
            wait_until(lambda: self.only()["state"] == "connected")
            self.agent.work()
            self.assert_attached(identity)
            self.assertEqual(202, self.delete(identity, **LATER).status)
        self.assertEqual("withdrawing", self.only()["state"])
        self.assertEqual({identity}, self.driver.granted())
        self.agent.work()
        self.assertEqual(200, self.delete(identity).status)
        self.assert_nothing_left()


class OlderCallsTest(HostAttachCase):
    """The actions of volumes take nothing from a host that has not let go."""

    def test_os_detach_waits_for_the_host(self):
        identity = self.attached()
        self.agent.is_busy = True
        for body in ({}, {"attachment_id": identity}):
            answer = self.action(**{"os-detach": body})
            self.assertEqual(409, answer.status, answer.raw)
            self.assertIn(fake_agent.BUSY, answer.fault)
        self.assert_attached(identity)
        self.agent.is_busy = False
        self.assertEqual(202, self.action(**{"os-detach": {}}).status)
        self.assert_nothing_left()

    def test_os_force_detach_waits_for_the_host_too(self):
        identity = self.attached()
        self.agent.is_busy = True
        body = {"attachment_id": identity, "connector": {"host": HOST}}
        self.assertEqual(409, self.action(**{"os-force_detach": body}).status)
        fake_agent.expire_heartbeat(HOST)
        answer = self.action(**{"os-force_detach": body})
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn("force=true", answer.fault)
        self.assert_attached(identity)
        fake_agent.report_agent(HOST)
        self.agent.is_busy = False
        self.assertEqual(202, self.action(**{"os-force_detach": body}).status)
        self.assert_nothing_left()

    def test_the_others_do_not_touch_it(self):
        identity = self.attached()
        for body in (
            {"os-terminate_connection": {"connector": self.only()["connector"]}},
            {"os-terminate_connection": {"connector": None}},
            {"os-unreserve": None},
            {"os-roll_detaching": None},
        ):
            with self.subTest(body):
                self.assertEqual(202, self.action(**body).status)
                self.assert_attached(identity)

    def test_a_volume_is_not_deleted_under_its_host(self):
        identity = self.attached()
        for state in ("attached", "connected", "withdrawing"):
            db_rows.change_attachment(identity, state=state)
            answer = self.action(**{"os-force_delete": {}})
            self.assertEqual(400, answer.status, answer.raw)
            self.assertIn(identity, answer.fault)
        self.assertEqual({identity}, self.driver.granted())


class ExtendTest(HostAttachCase):
    def test_the_agent_hears_of_a_volume_that_has_grown(self):
        identity = self.attached()
        del self.agent.told[:]
        self.assertEqual(202, self.action(**{"os-extend": {"new_size": 2}}).status)
        wait_until(lambda: self.agent.told == [identity])
        self.assertEqual(2, db_rows.get_volume(self.volume)["size_gib"])


class AgentRpcServerTest(HostAttachCase):
    """Managers accept the same reports from a host, and revoke its access by themselves."""

    def look(self, _context, _host, attachment_id):
        desk, proof = rpc_server.AgentEndpoint(), {"host": HOST, "key": fake_agent.KEY}
        duty = desk.desired_state(None, **proof, attachment_id=attachment_id)
        said = {**proof, "attachment_id": attachment_id, "generation": duty["generation"]}
        if duty["target_state"] == "connected":
            desk.connected(None, **said, device="/dev/sdb")
        else:
            desk.disconnected(context.get_admin_context(), **said)

    def test_it_is_attached_and_detached(self):
        with (
            mock.patch.object(agent_api, "reconcile", self.look),
            mock.patch.object(agent_api, "request_reconcile", self.look),
        ):
            for options in ({}, LATER):
                identity = self.attached()
                self.assertEqual("/dev/sdb", self.only()["device"])
                answer = self.delete(identity, **options)
                self.assertEqual(202 if options else 200, answer.status, answer.raw)
                wait_until(lambda: not db_rows.list_attachments())
                self.assert_nothing_left()
