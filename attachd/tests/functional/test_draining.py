# SPDX-License-Identifier: Apache-2.0
"""Tests of hosts that are taken out of service, with a manager whose backend is fake."""

import datetime
import threading
from unittest import mock

from attachd import context, exception
from attachd.closed_hosts import drains, fences
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.agents import agent_transitions
from attachd.db.attachments import attachment_queries
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.drained_hosts import DrainedHostsTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.tests.fixtures import (
    captured_notifications,
    conf_fixture,
    db_rows,
    fake_agent,
    wsgi_api,
)
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.functional.host_attach_case import HOST, HostAttachCase
from attachd.tests.wait import wait_until

VERSION = f"{wsgi_api.LATEST}, attachd 1.1"
OLD, OTHER = "compute-1", "compute-2"
REASON = "a new mainboard"
SERVER = "11111111-2222-4333-8444-555555555555"
NEVER = "99999999-2222-4333-8444-555555555555"


def connector(host):
    return {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}


class Calls:
    """The calls of hosts, for an administrator."""

    host = OLD

    def own(self, method, path, body=None, status=200):
        response = self.api.request(method, path, body, token=wsgi_api.ADMIN, version=VERSION)
        self.assertEqual(status, response.status, response.raw)
        return response.body["host"] if status == 200 else response.fault

    def drain(self, status=200, host=None, **requested):
        path = f"/hosts/{host or self.host}/drain"
        return self.own("POST", path, {"drain": {"reason": REASON, **requested}}, status)

    def drain_each(self):
        return self.drain(detach=self.shown()["attachment_ids"])

    def resume(self):
        return self.own("POST", f"/hosts/{self.host}/resume", {"resume": None})

    def fence(self, host=None, **fields):
        BackendHeartbeat(self.api.backend).run_once()
        path = f"/hosts/{host or self.host}/fence"
        body = {"fence": {"reason": "no heartbeat", **fields}}
        options = {"token": wsgi_api.ADMIN, "version": VERSION}
        response = self.api.request("POST", path, body, **options)
        self.assertEqual(200, response.status, response.raw)
        return response.body["fence"]

    def shown(self):
        return self.own("GET", f"/hosts/{self.host}")

    def statuses(self, host):
        return {item["attachment_id"]: item["status"] for item in host["drain"]["attachments"]}

    def reasons(self, host):
        return {item["attachment_id"]: item["reason"] for item in host["drain"]["attachments"]}


class Case(Calls, ApiCase):
    def attach(self, host=OLD, **fields):
        return self.create_attachment(
            db_rows.add_volume()["id"], connector=connector(host), **fields
        )

    def detach_one_by_one(self):
        patched = mock.patch.object(drains, "AT_ONCE", 1)
        patched.start()
        self.addCleanup(patched.stop)

    def connect(self, attachment, status=200, host=OLD):
        body = {"attachment": {"connector": connector(host)}}
        return self.expect(status, "PUT", f"/attachments/{attachment}", body)


class RefusalTest(Case):
    def test_drained_host_keeps_its_attachments_and_gets_no_new_ones(self):
        kept = self.attach()
        host = self.drain()
        self.assertEqual({kept: "attached"}, self.statuses(host))
        drain = host["drain"]
        self.assertEqual((REASON, "root"), (drain["reason"], drain["user_id"]))
        self.assertEqual({"attached": 1}, drain["counts"])
        self.assertFalse(host["fenced"])
        reserved = self.create_attachment(db_rows.add_volume()["id"])
        said = self.connect(reserved, 409).fault
        self.assertIn(f"Host {OLD} is drained since {drain['drained_at'][:10]}", said)
        self.assertIn(f"by user root, because: {REASON}", said)
        self.assertIn(f"openstack volume host resume {OLD}", said)
        self.assertEqual("reserved", db_rows.get_attachment(reserved)["state"])
        initialize = {"connector": connector(OLD)}
        self.act(db_rows.add_volume()["id"], "os-initialize_connection", initialize, 409)
        self.assertEqual({kept}, self.driver.granted())
        self.connect(reserved, host=OTHER)
        self.assertEqual({kept, reserved}, self.driver.granted())

    def test_repeated_connect_of_connected_attachment_gets_its_connection(self):
        kept = self.attach()
        self.drain()
        self.connect(kept)
        self.assertEqual({kept}, self.driver.granted())

    def test_resumed_host_attaches_again(self):
        self.attach()
        self.drain_each()
        host = self.resume()
        self.assertIsNone(host["drain"])
        self.attach()
        self.assertIsNone(self.resume()["drain"])

    def test_reason_is_optional(self):
        self.attach()
        self.own("POST", f"/hosts/{OLD}/drain", {"drain": {}})
        reserved = self.create_attachment(db_rows.add_volume()["id"])
        self.assertIn("because: no reason was given", self.connect(reserved, 409).fault)

    def test_second_drain_keeps_the_first(self):
        self.attach()
        first = self.drain()["drain"]
        second = self.drain(reason="another one")["drain"]
        self.assertEqual((first["drained_at"], REASON), (second["drained_at"], second["reason"]))

    def test_list_has_drained_hosts(self):
        self.attach()
        self.attach(OTHER)
        host = self.drain()
        answer = self.api.request("GET", "/hosts", token=wsgi_api.ADMIN, version=VERSION)
        self.assertEqual([host], answer.body["hosts"])

    def test_unknown_host_is_refused_and_not_drained(self):
        for name, body in (("drain", {"drain": {}}), ("resume", {"resume": None})):
            said = self.own("POST", f"/hosts/{OLD}0/{name}", body, 404)
            self.assertIn(f"Host {OLD}0 could not be found", said)
        self.assertIsNone(host_fences.find(f"{OLD}0"))

    def test_connect_that_began_before_gives_no_access(self):
        self.attach()
        reserved = self.create_attachment(db_rows.add_volume()["id"])

        def drain_first(_backend, event, _moved):
            # The row is connecting; the drain comes before the driver.
            if event == "attach.start":
                host_fences.drain(OLD, REASON, "root")

        with mock.patch("attachd.manager.notify.attachment_event", drain_first):
            said = self.connect(reserved, 409).fault
        self.assertIn(REASON, said)
        self.assertEqual("connect_failed", db_rows.get_attachment(reserved)["state"])
        self.assertNotIn(reserved, self.driver.granted())

    def test_connect_in_progress_is_listed_and_detached(self):
        reserved = self.create_attachment(db_rows.add_volume()["id"])
        granting, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def script(call):
            if call.method == "grant":
                granting.set()
                go.wait()

        self.driver.script = script
        self.addCleanup(setattr, self.driver, "script", None)
        connect = threading.Thread(
            target=lambda: self.api.request(
                "PUT", f"/attachments/{reserved}", {"attachment": {"connector": connector(OLD)}}
            )
        )
        connect.start()
        self.assertTrue(granting.wait(30))
        self.assertEqual({reserved: "attached"}, self.statuses(self.drain()))
        go.set()
        connect.join(30)
        self.assertEqual({reserved: "detached"}, self.statuses(self.drain_each()))
        self.assertEqual(set(), self.driver.granted())

    def test_interrupted_connect_of_drained_host_is_undone_by_recovery(self):
        attachment = self.attach()
        db_rows.change_attachment(attachment, state="connecting")
        self.drain()
        recovery = RecoveryLoop(self.api.backend)
        wait_until(
            lambda: (
                recovery.run_once()
                or db_rows.get_attachment(attachment)["state"] == "connect_failed"
            )
        )
        self.assertEqual(set(), self.driver.granted())


class DetachTest(Case):
    def test_all_are_detached_and_nothing_of_other_hosts(self):
        attachments = [self.attach() for _ in range(3)]
        other = self.attach(OTHER)
        sent = captured_notifications.use(self)
        host = self.drain_each()
        self.assertEqual({"detached": 3}, host["drain"]["counts"])
        self.assertEqual(dict.fromkeys(attachments, "detached"), self.statuses(host))
        revoked = {call.attachment for call in self.driver.calls if call.method == "revoke"}
        self.assertEqual({*attachments}, revoked)
        self.assertEqual({other}, self.driver.granted())
        self.assertEqual([], host["attachment_ids"])
        self.resume()
        steps = [item["event_type"] for item in sent.messages()]
        self.assertEqual(
            ["host.drain.start", "host.drain.end", "host.resume"],
            [step for step in steps if step.startswith("host.")],
        )

    def test_only_named_ones_are_detached_and_more_can_follow(self):
        first, second, third = (self.attach() for _ in range(3))
        host = self.drain(detach=[second.upper()])
        self.assertEqual({"attached": 2, "detached": 1}, host["drain"]["counts"])
        self.assertEqual({first, third}, self.driver.granted())
        host = self.drain(detach=[first, second])
        self.assertEqual(
            {first: "detached", second: "detached", third: "attached"}, self.statuses(host)
        )
        self.assertEqual(host, self.shown())

    def test_attachment_of_another_host_is_refused_and_nothing_drained(self):
        own, other = self.attach(), self.attach(OTHER)
        for wrong in (other, NEVER):
            said = self.drain(400, detach=[own, wrong])
            self.assertIn("drain.detach.1", said)
            self.assertIn(wrong, said)
        self.assertIsNone(self.shown()["drain"])
        self.assertEqual({own, other}, self.driver.granted())

    def test_attachment_without_agent_stays_unless_it_is_named(self):
        kept = self.attach()
        host = self.drain(detach="all")
        self.assertEqual({kept: "attached"}, self.statuses(host))
        self.assertIn("No agent has made it", self.reasons(host)[kept])
        self.assertEqual({kept}, self.driver.granted())
        self.assertEqual({kept: "detached"}, self.statuses(self.drain(detach=[kept])))

    def test_attachment_of_server_is_left_to_compute(self):
        of_server = self.attach(instance_uuid=SERVER)
        free = self.attach()
        host = self.drain_each()
        self.assertEqual({free: "detached", of_server: "left"}, self.statuses(host))
        self.assertIn(f"Server {SERVER} has it: migrate", self.reasons(host)[of_server])
        self.assertEqual({of_server}, self.driver.granted())

    def test_connection_of_older_calls_is_left(self):
        volume = db_rows.add_volume()["id"]
        self.act(volume, "os-initialize_connection", {"connector": connector(OLD)}, 200)
        host = self.drain(detach="all")
        self.assertEqual({"left": 1}, host["drain"]["counts"])
        (reason,) = self.reasons(host).values()
        self.assertIn("os-initialize_connection", reason)

    def test_backend_failure_is_shown_and_repeated_request_goes_on(self):
        self.detach_one_by_one()
        failing, other = self.attach(), self.attach()
        errors = iter([exception.BackendError("The backend failed.")])

        def fail_once(call):
            if call.method == "revoke" and (error := next(errors, None)):
                raise error

        self.driver.script = fail_once
        self.addCleanup(setattr, self.driver, "script", None)
        host = self.drain_each()
        self.assertEqual({failing: "failed", other: "detached"}, self.statuses(host))
        self.assertIn("The backend failed", self.reasons(host)[failing])
        self.assertEqual({failing: "failed", other: "detached"}, self.statuses(self.shown()))
        host = self.drain()
        self.assertEqual({"detached": 2}, host["drain"]["counts"])

    def test_drain_continues_where_a_dead_process_ended(self):
        first, second = self.attach(), self.attach()
        sent = captured_notifications.use(self)
        with mock.patch.object(drains, "advance", side_effect=SystemExit):
            self.assertRaises(SystemExit, self.drain_each)
        self.assertEqual({first: "waiting", second: "waiting"}, self.statuses(self.shown()))
        task = DrainedHostsTask(mock.Mock())
        wait_until(lambda: task.run_once() or self.shown()["drain"]["counts"] == {"detached": 2})
        task.run_once()
        task.run_once()
        steps = [item["event_type"] for item in sent.messages()]
        self.assertEqual(1, steps.count("host.drain.end"))

    def test_answer_comes_in_time_and_managers_go_on(self):
        attachments = [self.attach() for _ in range(3)]
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        go = threading.Event()
        self.addCleanup(go.set)
        self.driver.script = lambda call: call.method == "revoke" and go.wait()
        self.addCleanup(setattr, self.driver, "script", None)
        with mock.patch.object(drains, "AT_ONCE", 2):
            host = self.drain_each()
        statuses = self.statuses(host)
        self.assertEqual(["detaching", "detaching", "waiting"], [*map(statuses.get, attachments)])
        go.set()
        task = DrainedHostsTask(mock.Mock())
        wait_until(lambda: task.run_once() or self.shown()["drain"]["counts"] == {"detached": 3})
        self.assertEqual(set(), self.driver.granted())

    def test_resume_ends_the_drain_in_progress(self):
        self.detach_one_by_one()
        first, second = self.attach(), self.attach()
        self.driver.script = lambda call: call.method == "revoke" and host_fences.resume(OLD)
        self.addCleanup(setattr, self.driver, "script", None)
        self.assertIsNone(self.drain_each()["drain"])
        self.assertEqual({second}, self.driver.granted())
        self.assertEqual([second], [row["id"] for row in db_rows.list_attachments()])
        self.assertNotEqual(first, second)


class FenceTest(Case):
    def test_fence_of_drained_host_comes_first_and_its_end_leaves_the_drain(self):
        attachment = self.attach()
        self.drain()
        fence = self.fence()
        self.assertEqual(
            [(attachment, "proved")],
            [(item["attachment_id"], item["result"]) for item in fence["attachments"]],
        )
        reserved = self.create_attachment(db_rows.add_volume()["id"])
        self.assertIn("is fenced since", self.connect(reserved, 409).fault)
        host = self.own("POST", f"/hosts/{OLD}/unfence", {"unfence": None})
        self.assertEqual(
            (False, 1, REASON), (host["fenced"], host["generation"], host["drain"]["reason"])
        )
        self.assertIn("is drained since", self.connect(reserved, 409).fault)
        self.resume()
        self.connect(reserved)

    def test_fenced_host_can_be_drained(self):
        attachment = self.attach()
        BackendHeartbeat(self.api.backend).run_once()
        with self.driver.failing("revoke", "revoke_all_except"):
            self.fence()
        host = self.drain()
        self.assertEqual((True, "no heartbeat"), (host["fenced"], host["reason"]))
        self.assertEqual({attachment: "attached"}, self.statuses(host))
        host = self.drain_each()
        self.assertEqual({attachment: "detached"}, self.statuses(host))
        self.assertEqual(set(), self.driver.granted())
        self.assertTrue(self.resume()["fenced"])
        reserved = self.create_attachment(db_rows.add_volume()["id"])
        self.assertIn("is fenced since", self.connect(reserved, 409).fault)

    def test_fence_in_the_middle_of_a_drain_proves_what_is_left(self):
        self.detach_one_by_one()
        first, second = self.attach(), self.attach()
        BackendHeartbeat(self.api.backend).run_once()
        fences = []

        def fence_second(call):
            if call.method == "revoke" and not fences:
                fences.append(None)
                fences.append(self.fence_one(second))

        self.driver.script = fence_second
        self.addCleanup(setattr, self.driver, "script", None)
        host = self.drain_each()
        self.assertTrue(host["fenced"])
        self.assertEqual({first: "detached", second: "detached"}, self.statuses(host))
        self.assertEqual(set(), self.driver.granted())
        path = f"/attachments/{second}/timeline"
        answer = self.api.request("GET", path, token=wsgi_api.ADMIN, version=VERSION)
        self.assertIn("fenced", [event["type"] for event in answer.body["timeline"]])

    def fence_one(self, attachment):
        host_fences.fence(OLD, "no heartbeat", None)
        rows = attachment_queries.list_by_ids([attachment])
        fences.begin(context.get_admin_context(), [*rows.values()])


class AgentTest(Calls, HostAttachCase):
    host = HOST

    def test_agent_removes_the_device_before_the_access_ends(self):
        attachment = self.attached()
        host = self.drain(detach="all")
        self.assertEqual({attachment: "detached"}, self.statuses(host))
        self.assert_nothing_left()
        answer = self.post()
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn(REASON, answer.fault)
        self.assertEqual([], db_rows.list_attachments())
        self.resume()
        self.attached()

    def test_busy_device_stays_and_the_reason_is_shown(self):
        attachment = self.attached()
        self.agent.is_busy = True
        host = self.drain(detach="all")
        self.assertEqual({attachment: "failed"}, self.statuses(host))
        self.assertIn(fake_agent.BUSY, self.reasons(host)[attachment])
        self.assertIn(fake_agent.BUSY, self.reasons(self.shown())[attachment])
        self.assert_attached(attachment)
        self.agent.is_busy = False
        self.assertEqual({"detached": 1}, self.drain()["drain"]["counts"])
        self.assert_nothing_left()

    def test_agent_that_is_down_changes_nothing(self):
        attachment = self.attached()
        fake_agent.expire_heartbeat(HOST)
        host = self.drain(detach="all")
        self.assertEqual({attachment: "waiting"}, self.statuses(host))
        self.assertIn(f"The agent of host {HOST} is down", self.reasons(host)[attachment])
        self.assert_attached(attachment)
        self.assertEqual(host, self.shown())

    def be_silent(self):
        conf_fixture.override(self, "attach_timeout", 2, group="rpc")
        self.agent.be_silent(self)
        self.addCleanup(self.agent.resume)

    def test_silent_agent_is_detaching_and_finishes_later(self):
        attachment = self.attached()
        self.be_silent()
        host = self.drain(detach="all")
        self.assertEqual({attachment: "detaching"}, self.statuses(host))
        self.agent.resume()
        wait_until(lambda: not self.agent.devices)
        self.recover_until_deleted()
        self.assertEqual({attachment: "detached"}, self.statuses(self.shown()))

    def test_agent_that_dies_while_it_detaches_is_named_and_a_fence_ends_the_access(self):
        attachment = self.attached()
        self.be_silent()
        self.drain(detach="all")
        fake_agent.expire_heartbeat(HOST)
        for host in (self.drain(), self.shown()):
            self.assertEqual({attachment: "detaching"}, self.statuses(host))
            reason = self.reasons(host)[attachment]
            self.assertIn(f"The agent of host {HOST} is down", reason)
            self.assertIn(f"openstack volume host fence {HOST}", reason)
        fence = self.fence()
        self.assertEqual(["proved"], [item["result"] for item in fence["attachments"]])
        self.assertEqual({attachment: "detached"}, self.statuses(self.shown()))

    def test_device_that_is_being_made_is_reported_on_a_drained_host(self):
        attachment = self.attached()
        generation = self.only()["generation"]
        self.drain()
        agent_transitions.complete(attachment, HOST, generation, "/dev/sdb")
        self.assert_attached(attachment)

    def report(self, boot_id):
        fake_agent.report(HOST, connector=None, boot_id=boot_id, stops_writers=True)

    def test_agent_of_drained_host_may_report(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.drain()
        self.report("first")
        self.fence()
        self.assertRaises(exception.HostFenced, self.report, "first")

    def test_new_start_lifts_the_fence_and_not_the_drain(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.drain()
        self.fence(lift="auto")
        self.report("second")
        # The first start may still run: this would be a copy.
        self.assertTrue(self.shown()["fenced"])
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
        db_rows.change_agent(HOST, former_boot_at=long_ago)
        self.report("second")
        host = self.shown()
        self.assertEqual((False, REASON), (host["fenced"], host["drain"]["reason"]))
        self.assertRaises(exception.HostDrained, host_fences.check, HOST)
