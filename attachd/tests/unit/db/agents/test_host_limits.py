# SPDX-License-Identifier: Apache-2.0
"""Which attachments count against the limit of a host, and what is refused."""

from attachd import exception
from attachd.db.agents import agent_store, host_limits
from attachd.db.attachments import attachment_store, connect_rules
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows, fake_agent

HOST = "node-1"
OF_COMPUTE = {"host": HOST, "by_service": True}


class HostLimitsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST, max_attachments=2)

    def add(self, state="reserved", **values):
        volume_id = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume_id, state, **{"agent": HOST, **values})

    def reserve(self, **values):
        values = {"project_id": db_rows.PROJECT, "agent": HOST, **values}
        volume_id = db_rows.add_volume()["id"]
        return attachment_store.reserve(volume_id, values)

    def test_reserve_at_limit_is_refused_with_host_count_and_limit(self):
        self.reserve()
        self.reserve()
        refusal = rf"Host {HOST} has 2 attachments, and can take 2.*\[agent\]max_attachments"
        with self.assertRaisesRegex(exception.HostLimitExceeded, refusal):
            self.reserve()
        with self.assertRaises(exception.HostLimitExceeded):
            host_limits.check(HOST)
        self.assertEqual(2, len(db_rows.list_attachments()))

    def test_reserve_without_agent_or_at_another_host_is_not_limited(self):
        self.add()
        self.add("attached")
        fake_agent.report_agent("node-2")
        for agent in (None, "node-2", "node-2"):
            self.reserve(agent=agent)

    def test_attachment_that_is_detached_counts_until_it_is_gone(self):
        for state in ("withdrawing", "disconnecting"):
            self.add(state)
        with self.assertRaises(exception.HostLimitExceeded):
            self.reserve()

    def test_connection_of_compute_counts_when_it_is_connected(self):
        self.add("attached", agent=None, **OF_COMPUTE)
        self.add("reserved", agent=None, by_service=True)
        self.add("connected", agent=None, kind="legacy", **OF_COMPUTE)
        host_limits.check(HOST)
        self.add("connected", agent=None, kind="connection", **OF_COMPUTE)
        with self.assertRaises(exception.HostLimitExceeded):
            host_limits.check(HOST)

    def test_connection_of_user_does_not_count(self):
        for _ in range(3):
            self.add("attached", agent=None, host=HOST)
        host_limits.check(HOST)

    def test_lower_limit_keeps_what_is_attached_and_refuses_more(self):
        self.add("attached")
        self.add("attached")
        db_rows.change_agent(HOST, max_attachments=1)
        with self.assertRaisesRegex(exception.HostLimitExceeded, "has 2 .* can take 1"):
            self.reserve()
        db_rows.change_agent(HOST, max_attachments=None)
        self.reserve()

    def test_deleted_host_is_not_found(self):
        agent_store.delete(HOST)
        with self.assertRaises(exception.AgentNotFound):
            self.reserve()

    def test_failed_connect_does_not_count_and_is_refused_at_limit(self):
        failed = self.add("connect_failed")
        self.add("attached")
        self.reserve()
        request = connect_rules.Request(connect_rules.Action.CONNECT, db_rows.CONNECTOR)
        with session.writer() as connection:
            volume = {
                **db_rows.get_volume(failed["volume_id"]),
                "any_host_closed": False,
                "type_specs": {},
            }
            locked = LockedVolume(connection, volume, failed, [])
            with self.assertRaises(exception.HostLimitExceeded):
                connect_rules.decide(locked, request)
            connected = {**failed, "state": "reserved"}
            connect_rules.decide(locked._replace(attachment=connected), request)

    def test_preview_at_limit_shows_refusal(self):
        volume_id = db_rows.add_volume()["id"]
        values = {"project_id": db_rows.PROJECT, "agent": HOST}
        request = connect_rules.Request(connect_rules.Action.RESERVE)
        self.assertIsNone(attachment_store.preview(volume_id, values, request).refusal)
        self.add()
        self.add()
        refusal = attachment_store.preview(volume_id, values, request).refusal
        self.assertIsInstance(refusal, exception.HostLimitExceeded)

    def test_limit_costs_one_statement_only_where_it_is_set(self):
        numbers = {}
        for limit in (None, 9):
            db_rows.change_agent(HOST, max_attachments=limit)
            before = session.counters().statements
            self.reserve()
            numbers[limit] = session.counters().statements - before
        self.assertEqual(1, numbers[9] - numbers[None], numbers)
