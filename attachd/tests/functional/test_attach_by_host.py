# SPDX-License-Identifier: Apache-2.0
"""Tests of attaching by host name beside other calls: they leave nothing at the host."""

from unittest import mock

from attachd.conf import CONF
from attachd.db import host_fences
from attachd.db.agents import restored_database
from attachd.manager.agents import rpc_server
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.rpc import agent_manager_api
from attachd.tests import concurrency
from attachd.tests.fixtures import db_rows, fake_agent
from attachd.tests.functional.host_attach_case import (
    ATTACHD_1_0,
    HOST,
    LATER,
    SERVER,
    HostAttachCase,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

OTHER = "node-2"


class OrderTest(HostAttachCase):
    """Who is let in first, and who goes first."""

    def test_agent_attach_grants_before_connect_and_revokes_after_disconnect(self):
        seen = []
        real = self.driver.revoke

        def revoke(*args):
            seen.append(dict(self.agent.devices))
            return real(*args)

        self.agent.before_work = lambda: seen.append(self.driver.granted())
        identity = self.attached()
        self.assert_attached(identity)
        with mock.patch.object(self.driver, "revoke", revoke):
            self.assertEqual(200, self.delete(identity).status)
        self.assertEqual([{identity}, {}], seen)
        self.assert_nothing_left()

    def test_attach_with_connector_ignores_agents(self):
        body = {"attachment": {"volume_uuid": self.volume, "connector": {"host": HOST}}}
        made = self.api.request("POST", "/attachments", body, **ATTACHD_1_0).body["attachment"]
        self.assertEqual(("reserved", None), (made["status"], made["agent"]))
        self.assertEqual(200, self.delete(made["id"]).status)
        self.assertEqual([], self.agent.requested)
        self.assert_nothing_left()


class RaceTest(HostAttachCase):
    def test_delete_attachment_during_manager_connect_leaves_nothing(self):
        deleted = []
        real = self.driver.grant

        def grant(*args):
            deleted.append(self.delete(self.only()["id"], **LATER))
            return real(*args)

        with mock.patch.object(self.driver, "grant", grant):
            answer = self.post()
        self.assertEqual(202, deleted[0].status, deleted[0].raw)
        self.assertEqual(409, answer.status, answer.raw)
        wait_until(lambda: not db_rows.list_attachments())
        self.assert_nothing_left()

    def test_delete_attachment_before_agent_reconciles_leaves_nothing(self):
        for options in ({}, LATER):
            with self.subTest(options):
                deleted = []

                def delete(done=deleted, how=options):
                    done.append(self.delete(self.only()["id"], **how))

                self.agent.before_work = delete
                answer = self.post()
                self.assertEqual(409, answer.status, answer.raw)
                self.assertIn("deleted", answer.fault)
                self.recover_until_deleted()
                wait_until(lambda done=deleted: done)
                self.assertLess(deleted[0].status, 300, deleted[0].raw)
                self.assert_nothing_left()

    def test_delete_attachment_twice_at_once_deletes_once(self):
        identity = self.attached()
        answers = concurrency.run_at_once(*[lambda: self.delete(identity)] * 2)
        statuses = sorted(answer.status for answer in answers)
        self.assertIn(statuses, ([200, 200], [200, 404]), [item.raw for item in answers])
        self.assertEqual(1, self.driver.methods.count("revoke"))
        self.assert_nothing_left()

    def test_delete_attachment_beside_async_delete_deletes_once(self):
        identity = self.attached()
        answers = concurrency.run_at_once(
            lambda: self.delete(identity), lambda: self.delete(identity, **LATER)
        )
        self.assertTrue({answer.status for answer in answers} <= {200, 202, 404}, answers)
        self.recover_until_deleted()
        self.assert_nothing_left()

    def test_agent_attach_repeated_at_once_attaches_once(self):
        fields = {"instance_uuid": SERVER}
        answers = concurrency.run_at_once(*[lambda: self.post(fields=fields)] * 4)
        self.assertEqual({200}, {answer.status for answer in answers}, answers)
        self.assertEqual(1, len({answer.body["attachment"]["id"] for answer in answers}))
        self.assert_attached(self.only()["id"])

    def test_agent_attach_and_delete_at_once_end_in_one_state(self):
        def attach_and_detach():
            for _ in range(4):
                answer = self.post(fields={"instance_uuid": SERVER})
                if answer.status == 200:
                    self.delete(answer.body["attachment"]["id"])
                else:
                    self.assertIn(answer.status, {400, 404, 409}, answer.raw)

        for error in concurrency.run_at_once(*[attach_and_detach] * 3):
            self.assertIsNone(error)
        for row in db_rows.list_attachments():
            self.assertEqual(200, self.delete(row["id"]).status)
        self.assert_nothing_left()


class KeyTest(HostAttachCase):
    """A request with a key answers the truth, however often it is sent."""

    def setUp(self):
        super().setUp()
        self.key = {"idempotency_key": "k"}

    def test_agent_attach_repeated_with_key_returns_current_state(self):
        identity = self.attached(**self.key)
        db_rows.change_attachment(identity, device="/dev/elsewhere")
        again = self.post(**self.key)
        self.assertEqual(
            ("200", "true"), (f"{again.status}", again.headers["idempotent-replayed"])
        )
        self.assertEqual("/dev/elsewhere", again.body["attachment"]["device"])
        self.assertEqual([identity], self.agent.requested)

    def test_agent_attach_repeated_after_lost_response_attaches_once(self):
        self.agent.be_silent(self)
        first = self.post(**self.key)
        identity = self.only()["id"]
        self.assertEqual(504, first.status, first.raw)
        self.assertIn(identity, first.fault)
        CONF.set_override("work_timeout", int(TIMEOUT), "agent")
        self.agent.is_silent = False
        self.assertEqual(identity, self.attached(**self.key))
        self.agent.resume()
        self.assert_attached(identity)

    def test_agent_attach_repeated_after_host_error_succeeds(self):
        self.agent.is_failing = True
        self.assertEqual(500, self.post(**self.key).status)
        self.assert_nothing_left()
        self.agent.is_failing = False
        self.assert_attached(self.attached(**self.key))

    def test_agent_attach_with_one_key_many_times_at_once_attaches_once(self):
        answers = concurrency.run_at_once(*[lambda: self.post(**self.key)] * 4)
        self.assertEqual({200}, {answer.status for answer in answers}, answers)
        self.assertEqual(1, len(db_rows.list_attachments()))


class OnMariadb(RaceTest):
    kind = "mariadb"


@full_only("races")
class OnPostgresql(RaceTest):
    kind = "postgresql"


class SecretTest(HostAttachCase):
    """The secrets of a connection are for the agent of its host alone."""

    def test_agent_attachment_shows_its_secrets_to_the_agent_only(self):
        endpoint = rpc_server.AgentEndpoint()
        connection = {"driver_volume_type": "iscsi", "data": {"auth_password": "pass-word"}}
        credentials = fake_agent.get_credentials(HOST)._asdict()
        db_rows.change_agent(HOST, report_process=fake_agent.PROCESS)

        def desired(attachment_id):
            return endpoint.desired_state(None, **credentials, attachment_id=attachment_id)

        def read():
            seen.append(desired(self.only()["id"])["connection_info"]["auth_password"])

        seen = []
        self.agent.before_work = read
        with mock.patch.object(self.driver, "grant", return_value=connection):
            made = self.post()
        identity = made.body["attachment"]["id"]
        wait_until(lambda: seen == ["pass-word"])
        answers = [made]
        for path in (f"/attachments/{identity}", "/attachments/detail"):
            answers.append(self.api.request("GET", path, **ATTACHD_1_0))
            answers.append(self.api.request("GET", path))  # a member
        self.assertEqual({200}, {answer.status for answer in answers})
        for answer in answers:
            self.assertIn(b"driver_volume_type", answer.raw)
            self.assertNotIn(b"pass-word", answer.raw)
        later = desired(identity)
        self.assertTrue(later["secrets_withheld"])
        self.assertNotIn("auth_password", later["connection_info"])


class ForeignDeviceTest(HostAttachCase):
    """A host that reports a device of a volume that it never had."""

    def setUp(self):
        super().setUp()
        server = AgentRpcServer()
        server.start()
        self.addCleanup(server.stop)
        fake_agent.report_agent(OTHER)

    def report_device(self):
        device: agent_manager_api.DeviceReport = {
            "attachment_id": SERVER,
            "volume_id": self.volume,
            "path": "/dev/sdx",
            "size_bytes": 1,
        }
        said = fake_agent.make_report(OTHER, devices=[device])
        agent_manager_api.report(fake_agent.get_credentials(OTHER), said)

    def assert_can_attach(self):
        answer = self.post()
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual(200, self.delete(answer.body["attachment"]["id"]).status)

    def test_reported_device_of_foreign_volume_blocks_nothing(self):
        self.report_device()
        self.assert_can_attach()

    def test_reported_device_counts_after_a_restore_until_an_administrator_ends_that(self):
        self.report_device()
        restored_database.begin(3600)
        answer = self.post()
        self.assertEqual(409, answer.status, answer.raw)
        self.assertIn(f"db restored --end {OTHER}", answer.fault)
        restored_database.end([OTHER])
        self.assert_can_attach()

    def test_reported_device_of_fenced_host_blocks_nothing(self):
        self.report_device()
        restored_database.begin(3600)
        host_fences.fence(OTHER, "it is taken over", None)
        self.assert_can_attach()
