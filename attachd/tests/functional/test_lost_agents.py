# SPDX-License-Identifier: Apache-2.0
"""Tests of hosts whose agents are silent, with a manager whose backend is fake."""

import datetime
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.engine import session
from attachd.lost_agents import Action, Rule
from attachd.manager.agents import lost_agents
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.tests.fixtures import (
    conf_fixture,
    db_rows,
    fake_agent,
    fake_clocks,
    requirements,
    wsgi_api,
)
from attachd.tests.functional.host_attach_case import HOST, HostAttachCase
from attachd.tests.wait import wait_until

VERSION = f"{wsgi_api.LATEST}, attachd 1.1"
OTHER = "node-2"
LEASE = 20
ALL = "SELECT, INSERT, UPDATE, DELETE"


class LostAgentTest(HostAttachCase):
    lost_action = Action.FENCE

    def setUp(self):
        super().setUp()
        self.clocks = fake_clocks.use(self)
        self.api.backend.lost_agent_rule = Rule(self.lost_action, LEASE)
        BackendHeartbeat(self.api.backend).run_once()
        self.agent.is_silent = False
        self.search = lost_agents.LostAgents()

    def report(self, **values):
        """Report as the agent of the host; raise what the agent would get."""
        return fake_agent.report(HOST, **{"stops_writers": True, "lease": LEASE, **values})

    def pass_time(self, seconds):
        """Have the clocks of the database and of the manager go on, with searches in between."""
        self.clocks.pass_time(seconds, self.search.run_once)

    def own(self, method, path, body=None):
        answer = self.api.request(method, path, body, token=wsgi_api.ADMIN, version=VERSION)
        return answer.status, answer.body

    def is_fenced(self):
        return self.own("GET", f"/hosts/{HOST}")[1]["host"]["fenced"]


class FenceTest(LostAgentTest):
    def test_volume_of_lost_host_is_given_to_another_with_proof(self):
        attachment = self.attached()
        (state,) = self.report()
        self.assertEqual(20, state["lease"])
        self.pass_time(19)
        self.assertFalse(self.is_fenced())
        self.assertEqual({attachment}, self.driver.granted())
        self.pass_time(2)
        self.assertTrue(self.is_fenced())
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or not db_rows.list_attachments())
        self.assertEqual(set(), self.driver.granted())
        _status, body = self.own("GET", f"/attachments/{attachment}/timeline")
        self.assertEqual(["fenced", "deleted"], [item["type"] for item in body["timeline"]][-2:])
        self.assertEqual("proved", body["timeline"][-2]["proof"]["result"])
        fake_agent.FakeAgent(self, OTHER)
        fields = {"volume_uuid": self.volume, "host": OTHER}
        status, _body = self.own("POST", "/attachments", {"attachment": fields})
        self.assertEqual(200, status)

    def test_heartbeat_of_fenced_host_is_answered_with_fence_until_new_start(self):
        self.attached()
        self.report()
        self.pass_time(21)
        for _ in range(2):
            with self.assertRaisesRegex(exception.HostFenced, "because: agent lost since"):
                self.report()
        self.assertEqual([], self.report(stops_writers=False))
        self.assertTrue(self.is_fenced())
        self.assertEqual(409, self.post().status)
        self.assertEqual([], self.report(boot_id="second"))
        # The first start may still run: this would be a copy.
        self.assertTrue(self.is_fenced())
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
        db_rows.change_agent(HOST, former_boot_at=long_ago)
        self.assertEqual([], self.report(boot_id="second"))
        self.assertFalse(self.is_fenced())
        self.report(boot_id="second")

    def test_heartbeat_in_time_renews_the_lease(self):
        self.attached()
        for _ in range(5):
            self.report()
            self.pass_time(15)
        self.assertFalse(self.is_fenced())

    def test_heartbeat_after_fence_by_administrator_is_answered_with_it(self):
        self.attached()
        self.report()
        body = {"fence": {"reason": "by hand"}}
        self.assertEqual(200, self.own("POST", f"/hosts/{HOST}/fence", body)[0])
        with self.assertRaisesRegex(exception.HostFenced, "because: by hand"):
            self.report()

    def test_agent_without_leases_is_fenced_after_down_time(self):
        conf_fixture.override(self, "down_time", 60, group="agent")
        self.attached()
        (state,) = self.report(stops_writers=False)
        self.assertNotIn("lease", state)
        self.pass_time(59)
        self.assertFalse(self.is_fenced())
        self.pass_time(2)
        self.assertTrue(self.is_fenced())

    def rule(self, timeout):
        self.api.backend.lost_agent_rule = Rule(self.lost_action, timeout)
        BackendHeartbeat(self.api.backend).run_once()

    def test_first_lease_counts_when_the_agent_holds_it(self):
        conf_fixture.override(self, "down_time", 60, group="agent")
        self.attached()
        (state,) = self.report(lease=None)
        self.assertEqual(20, state["lease"])
        self.pass_time(59)  # The answer was lost: the agent stops no writers.
        self.assertFalse(self.is_fenced())
        self.report(lease=None)
        self.pass_time(30)
        self.report(lease=20)
        self.pass_time(21)
        self.assertTrue(self.is_fenced())

    def test_shorter_lease_counts_when_the_agent_holds_it(self):
        self.attached()
        self.rule(90)
        self.report(lease=90)
        self.rule(20)
        (state,) = self.report(lease=90)
        self.assertEqual(20, state["lease"])
        self.pass_time(89)  # The answer was lost: the agent stops writers after 60 s.
        self.assertFalse(self.is_fenced())
        self.report(lease=90)
        self.report(lease=20)
        self.pass_time(21)
        self.assertTrue(self.is_fenced())

    def test_host_cannot_postpone_its_fence(self):
        conf_fixture.override(self, "down_time", 30, group="agent")
        self.attached()
        for _ in range(2):
            self.report(lease=86400)
        self.pass_time(31)
        self.assertTrue(self.is_fenced())

    def test_longer_lease_counts_from_its_answer_on(self):
        self.attached()
        self.rule(90)
        self.report(lease=20)
        self.pass_time(89)
        self.assertFalse(self.is_fenced())
        self.pass_time(2)
        self.assertTrue(self.is_fenced())

    def test_lease_that_no_attachment_asks_for_any_more_counts_until_it_is_given_up(self):
        self.attached()
        self.rule(90)
        self.report(lease=20)
        self.report(lease=90)
        self.api.backend.lost_agent_rule = Rule()
        BackendHeartbeat(self.api.backend).run_once()
        conf_fixture.override(self, "down_time", 30, group="agent")
        (state,) = self.report(lease=90)
        self.assertNotIn("lease", state)
        self.rule(20)
        self.pass_time(89)
        self.assertFalse(self.is_fenced())
        self.pass_time(2)
        self.assertTrue(self.is_fenced())


class MarkTest(LostAgentTest):
    lost_action = Action.MARK

    def test_marked_host_keeps_access_and_shows_it_until_next_heartbeat(self):
        attachment = self.attached()
        (state,) = self.report()
        self.assertNotIn("lease", state)
        self.pass_time(21)
        self.assertIsNone(host_fences.find(HOST))
        self.assertEqual({attachment}, self.driver.granted())
        shown = self.own("GET", f"/attachments/{attachment}")[1]["attachment"]
        self.assertEqual("attached", shown["status"])
        self.assertIn("is lost since", shown["error"])
        with mock.patch("attachd.notifications.host") as notified:
            self.report()
        self.assertEqual("found", notified.call_args.args[0])
        shown = self.own("GET", f"/attachments/{attachment}")[1]["attachment"]
        self.assertIsNone(shown["error"])


class NothingTest(LostAgentTest):
    lost_action = Action.NOTHING

    def test_nothing_is_done_by_default(self):
        attachment = self.attached()
        self.report()
        self.pass_time(200)
        self.assertIsNone(host_fences.find(HOST))
        shown = self.own("GET", f"/attachments/{attachment}")[1]["attachment"]
        self.assertEqual(("attached", None), (shown["status"], shown["error"]))


class UnwritableDatabaseTest(LostAgentTest):
    """A database that refuses writes, as a server that is set read-only does."""

    kind = "mariadb"

    def setUp(self):
        super().setUp()
        url, self.grant = requirements.create_database_user(self, CONF.database.connection)
        self.grant(ALL)
        conf_fixture.override(self, "connection", url, "database")
        session.dispose()
        self.addCleanup(session.dispose)

    def search_once(self):
        """Search as the thread of a manager does."""
        try:
            self.search.run_once()
        except exception.Unavailable as error:
            self.search._handle_failure(error)

    def test_host_whose_reports_could_not_be_stored_is_not_fenced(self):
        self.attached()
        self.report()
        self.pass_time(9)
        self.grant("SELECT")
        self.assertRaises(exception.Unavailable, self.report)
        self.clocks.pass_time(10.9, self.search_once)
        self.grant(ALL)
        # The lease is over, and its host is about to report again.
        self.clocks.pass_time(19, self.search_once)
        self.assertFalse(self.is_fenced())
        self.report()
        self.clocks.pass_time(19, self.search_once)
        self.assertFalse(self.is_fenced())
        self.clocks.pass_time(2, self.search_once)
        self.assertTrue(self.is_fenced())
