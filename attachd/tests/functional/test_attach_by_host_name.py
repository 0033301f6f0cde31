# SPDX-License-Identifier: Apache-2.0
"""Tests of attaching by host name with agents that fail, are late, or are called otherwise."""

from concurrent import futures
from unittest import mock

from attachd import context, exception
from attachd.conf import CONF
from attachd.manager.agents import rpc_server
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc import agent_api
from attachd.tests.fixtures import db_rows, fake_agent
from attachd.tests.functional.host_attach_case import HOST, LATER, HostAttachCase
from attachd.tests.wait import TIMEOUT, wait_until


class UnwillingTest(HostAttachCase):
    """Hosts that are busy, fail or are silent."""

    def test_agent_attach_with_failing_host_leaves_nothing(self):
        self.agent.is_failing = True
        answer = self.post()
        self.assertEqual((500, fake_agent.NO_SESSION), (answer.status, answer.fault))
        self.assert_nothing_left()

    def test_agent_attach_with_failing_revoke_names_the_attachment(self):
        self.agent.is_failing = True
        with self.driver.failing("revoke"):
            answer = self.post()
        identity = self.only()["id"]
        self.assertEqual(500, answer.status)
        for part in (
            fake_agent.NO_SESSION,
            "The backend failed",
            f"DELETE /attachments/{identity}",
        ):
            self.assertIn(part, answer.fault)
        self.assertEqual(200, self.delete(identity).status)
        self.assert_nothing_left()

    def test_agent_attach_with_failing_grant_does_not_call_the_agent(self):
        with self.driver.failing("grant", final=True):
            answer = self.post()
        self.assertEqual(500, answer.status, answer.raw)
        self.assertEqual([], self.agent.requested)
        self.assertEqual(200, self.delete(self.only()["id"]).status)
        self.assert_nothing_left()

    def test_agent_detach_with_busy_device_keeps_device_and_grant(self):
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

    def test_agent_detach_with_silent_agent_stays_detaching_until_it_disconnects(self):
        identity = self.attached()
        self.agent.be_silent(self)
        answer = self.delete(identity)
        self.assertEqual(504, answer.status, answer.raw)
        self.assertEqual("withdrawing", self.only()["state"])
        self.assertEqual("detaching", db_rows.get_volume(self.volume)["status"])
        RecoveryLoop(self.api.backend).run_once()
        self.assertEqual({identity}, self.driver.granted())
        CONF.set_override("work_timeout", int(TIMEOUT), "agent")
        self.agent.resume()
        self.recover_until_deleted()
        self.assert_nothing_left()

    def test_agent_detach_ends_as_soon_as_its_agent_counts_as_down(self):
        identity = self.attached()
        self.agent.be_silent(self)
        CONF.set_override("work_timeout", int(TIMEOUT), "agent")
        with futures.ThreadPoolExecutor() as pool:
            deletion = pool.submit(self.delete, identity)
            wait_until(lambda: self.only()["state"] == "withdrawing")
            fake_agent.expire_heartbeat(HOST)
            answer = deletion.result(TIMEOUT)
        self.assertEqual(409, answer.status, answer.raw)
        for text in ("has not reported since", "is detaching", f"attachd host fence {HOST}"):
            self.assertIn(text, answer.fault)
        self.assertEqual({identity}, self.driver.granted())

    def test_agent_detach_with_agent_down_keeps_grant_unless_forced(self):
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

    def test_agent_attach_without_agent_queue_is_refused(self):
        fake_agent.report_agent("node-2")
        answer = self.post(fields={"host": "node-2"})
        self.assertEqual(409, answer.status, answer.raw)
        identity = self.only()["id"]
        self.assertIn(identity, answer.fault)
        answer = self.delete(identity)
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn("is detaching", answer.fault)
        self.assertEqual("withdrawing", self.only()["state"])

    def test_agent_attach_without_message_queue_waits_for_the_agent(self):
        away = exception.Unavailable(reason="The message queue does not answer.")
        with mock.patch.object(agent_api, "reconcile", side_effect=away):
            answer = self.post()
            self.assertEqual(503, answer.status, answer.raw)
            identity = self.only()["id"]
            self.assertIn(identity, answer.fault)
        self.agent.work()
        self.assert_attached(identity)


class LaterTest(HostAttachCase):
    def test_async_agent_attach_returns_at_once(self):
        answer = self.post(**LATER)
        self.assertEqual(202, answer.status, answer.raw)
        identity = answer.body["attachment"]["id"]
        wait_until(lambda: self.only()["state"] == "attached")
        self.assert_attached(identity)
        answer = self.delete(identity, **LATER)
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual("detaching", answer.body["attachment"]["status"])
        self.recover_until_deleted()
        self.assert_nothing_left()

    def test_async_agent_attach_with_lost_message_is_found_by_the_agent(self):
        deaf = exception.AgentUnavailable(host=HOST, since="yet")
        with mock.patch.object(agent_api, "reconcile", side_effect=deaf):
            identity = self.post(**LATER).body["attachment"]["id"]
            wait_until(lambda: self.only()["state"] == "connected")
            self.agent.work()
            self.assert_attached(identity)
            self.assertEqual(202, self.delete(identity, **LATER).status)
        self.assertEqual("withdrawing", self.only()["state"])
        self.assertEqual({identity}, self.driver.granted())
        self.agent.work()
        self.recover_until_deleted()
        self.assert_nothing_left()


class OlderCallsTest(HostAttachCase):
    """The actions of volumes take nothing from a host that has not let go."""

    def test_os_detach_of_agent_attachment_waits_for_the_agent(self):
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

    def test_os_force_detach_of_agent_attachment_waits_for_the_agent(self):
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

    def test_legacy_calls_do_not_change_agent_attachments(self):
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

    def test_delete_volume_with_agent_attachment_is_refused(self):
        identity = self.attached()
        for state in ("attached", "connected", "withdrawing"):
            db_rows.change_attachment(identity, state=state)
            answer = self.action(**{"os-force_delete": {}})
            self.assertEqual(400, answer.status, answer.raw)
            self.assertIn(identity, answer.fault)
        self.assertEqual({identity}, self.driver.granted())


class ExtendTest(HostAttachCase):
    def test_extend_volume_notifies_the_agent(self):
        identity = self.attached()
        del self.agent.requested[:]
        self.assertEqual(202, self.action(**{"os-extend": {"new_size": 2}}).status)
        wait_until(lambda: self.agent.requested == [identity])
        self.assertEqual(2, db_rows.get_volume(self.volume)["size_gib"])


class AgentRpcServerTest(HostAttachCase):
    """Managers accept the same reports from a host, and revoke its access by themselves."""

    def reconcile(self, _context, _host, attachment_id):
        endpoint, proof = rpc_server.AgentEndpoint(), fake_agent.get_credentials(HOST)._asdict()
        desired = endpoint.desired_state(None, **proof, attachment_id=attachment_id)
        said = {**proof, "attachment_id": attachment_id, "generation": desired["generation"]}
        if desired["target_state"] == "connected":
            endpoint.connected(None, **said, device="/dev/sdb")
        else:
            endpoint.disconnected(context.get_admin_context(), **said)

    def test_agent_over_manager_rpc_attaches_and_detaches(self):
        db_rows.change_agent(HOST, report_process=fake_agent.PROCESS)
        with mock.patch.object(agent_api, "reconcile", self.reconcile):
            for options in ({}, LATER):
                identity = self.attached()
                self.assertEqual("/dev/sdb", self.only()["device"])
                answer = self.delete(identity, **options)
                self.assertEqual(202 if options else 200, answer.status, answer.raw)
                wait_until(lambda: not db_rows.list_attachments())
                self.assert_nothing_left()
