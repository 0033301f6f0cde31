# SPDX-License-Identifier: Apache-2.0
"""Tests of the condition of attachments, with reports over the message queue and a fake backend.

Devices and sessions that are really there are in test_agent_conditions.py.
"""

import datetime
import threading
from typing import Any

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks import conditions
from attachd.manager.telemetry import RowCountCollector
from attachd.rpc import agent_manager_api
from attachd.tests import concurrency
from attachd.tests.fixtures import (
    backends,
    captured_notifications,
    db_rows,
    fake_agent,
    wsgi_api,
)
from attachd.tests.functional.host_attach_case import HOST, HostAttachCase

VERSION = f"{wsgi_api.LATEST}, attachd 1.1"
OTHER = "node-2"
MOST_STATEMENTS = 3
MANAGERS = 4
CYCLES = 10


class Case(HostAttachCase):
    def setUp(self):
        super().setUp()
        self.agents = AgentRpcServer()
        self.agents.start()
        self.addCleanup(self.agents.stop)
        self.attachment = self.attached()
        # As if the attach was long ago: earlier reports say nothing of it.
        db_rows.change_attachment(
            self.attachment, attached_at=models.now() - datetime.timedelta(hours=1)
        )

    def report(self, *states, path="/dev/dm-0", host=HOST, **values):
        """Report a device with paths, as the agent of a host does."""
        paths = [{"name": f"sd{number}", "state": state} for number, state in enumerate(states)]
        device: Any = {
            "attachment_id": self.attachment,
            "volume_id": self.volume,
            "path": path,
            "size_bytes": 2**30,
            "paths": paths,
            "last_io_error": None,
            **values,
        }
        said = fake_agent.make_report(host, devices=[device])
        agent_manager_api.report(fake_agent.get_credentials(host), said)

    def observe(self):
        conditions.observe(self.api.backend)

    def own(self, path):
        answer = self.api.request("GET", path, token=wsgi_api.ADMIN, version=VERSION)
        self.assertEqual(200, answer.status, answer.raw)
        return answer.body

    def condition(self):
        """Observe, and return the condition as the API shows it."""
        self.observe()
        return self.shown()

    def shown(self):
        return self.own(f"/attachments/{self.attachment}")["attachment"]["condition"]

    def changes(self):
        """Return the conditions of the events, by the timeline."""
        timeline = self.own(f"/attachments/{self.attachment}/timeline")["timeline"]
        found = [event for event in timeline if event["type"] == "condition_changed"]
        self.assertLessEqual({event["status"] for event in found}, {"attached"})
        return [event["condition"]["state"] for event in found]


class ConditionTest(Case):
    def test_condition_is_shown_as_the_agent_reports_it(self):
        first = self.shown()
        self.assertEqual(("unknown", None), (first["state"], first["changed_at"]))
        for states, expected in (
            (("active", "active"), "ok"),
            (("active", "failed"), "degraded"),
            (("failed", "failed"), "failed"),
        ):
            self.report(*states, last_io_error="sd1 is offline")
            found = self.condition()
            self.assertEqual(expected, found["state"])
            self.assertEqual([*states], [path["state"] for path in found["paths"]])
            self.assertEqual("sd1 is offline", found["last_io_error"])
        self.report(path=None)
        found = self.condition()
        self.assertEqual(("failed", False, []), (
            found["state"], found["device_present"], found["paths"],
        ))  # fmt: skip
        self.assertIn(f"Host {HOST} has no device", found["message"])
        self.report("active")
        self.assertEqual("ok", self.condition()["state"])
        # From all paths failed to no device it is the same state.
        self.assertEqual(["degraded", "failed", "ok"], self.changes())

    def test_change_is_one_event_of_the_stream_and_one_notification(self):
        notified = captured_notifications.use(self)
        since = self.own("/events")["revision"]
        self.report("active")
        self.observe()
        for _ in range(3):
            self.report("failed")
            self.observe()
        (event,) = self.own(f"/events?since={since}")["events"]
        self.assertEqual(
            (self.attachment, "condition_changed"), (event["attachment_id"], event["type"])
        )
        change = (event["condition"]["former_state"], event["condition"]["state"])
        self.assertEqual(("ok", "failed"), change)
        self.assertEqual(["volume.attach.condition"], notified.event_types())

    def test_condition_is_counted_by_metrics(self):
        for states, expected in ((("active",), "ok"), (("failed",), "failed")):
            self.report(*states)
            self.observe()
            counts = self.counts()
            self.assertEqual({expected}, {state for state, count in counts.items() if count})
            self.assertEqual({"ok", "degraded", "failed", "unknown"}, set(counts))

    def counts(self):
        with session.writer() as connection:  # as after count_interval
            connection.execute(sa.update(models.row_counts).values(numbers=None))
        families = RowCountCollector().collect()
        (found,) = (item for item in families if item.name == "attachd_attachment_conditions")
        return {sample.labels["state"]: sample.value for sample in found.samples}

    def test_other_host_cannot_change_the_condition(self):
        fake_agent.FakeAgent(self, OTHER)
        self.report("active")
        self.observe()
        self.report(path=None, host=OTHER)
        self.report("failed", host=OTHER)
        self.assertEqual("ok", self.condition()["state"])
        self.assertEqual([], self.changes())

    def test_report_of_too_many_paths_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "paths"):
            self.report(*["active"] * 65)

    def test_detaching_attachment_has_no_condition(self):
        self.report("failed")
        self.observe()
        self.agent.be_silent(self)
        self.assertEqual(504, self.delete(self.attachment).status)
        shown = self.own(f"/attachments/{self.attachment}")["attachment"]
        self.assertEqual(("detaching", None), (shown["status"], shown["condition"]))
        self.agent.resume()

    def test_attachment_under_attachd_1_0_shows_no_condition(self):
        self.report("active")
        self.observe()
        for version in (wsgi_api.LATEST, f"{wsgi_api.LATEST}, attachd 1.0"):
            answer = self.api.request("GET", f"/attachments/{self.attachment}", version=version)
            self.assertNotIn("condition", answer.body["attachment"])

    def test_list_shows_conditions_with_few_statements(self):
        other = db_rows.add_attachment(db_rows.add_volume()["id"], "reserved")["id"]
        self.report("active")
        self.observe()
        before = session.counters().statements
        found = self.own("/attachments/detail?all_tenants=1")["attachments"]
        self.assertLessEqual(session.counters().statements - before, MOST_STATEMENTS)
        shown = {item["id"]: item["condition"] and item["condition"]["state"] for item in found}
        self.assertEqual({self.attachment: "ok", other: None}, shown)

    def test_observation_does_not_change_the_attachment(self):
        before = self.only()
        for states in (("active",), ("failed",)):
            self.report(*states)
            self.observe()
        after = self.only()
        for name in set(before) - {"condition_state", "observed"}:
            self.assertEqual(before[name], after[name], name)

    def test_observation_of_many_attachments_needs_six_statements(self):
        self.report("active")
        self.observe()
        for _ in range(20):
            db_rows.add_attachment(self.volume, "attached", connector={"host": HOST})
        before = session.counters().statements
        self.observe()
        self.assertEqual(6, session.counters().statements - before)


class RacesOnSqlite(Case):
    """Several managers observe at the same time, also while hosts attach and detach."""

    def observe_elsewhere(self):
        """Observe as another manager process."""
        backend = Backend(backends.NAME, self.driver)
        backend.setup()
        conditions.observe(backend)

    def test_change_seen_by_several_managers_is_one_event(self):
        self.report("active")
        self.observe()
        expected = []
        for state, condition in (("failed", "failed"), ("active", "ok")) * 3:
            self.report(state)
            outcomes = concurrency.run_at_once(*[self.observe_elsewhere] * MANAGERS)
            self.assertEqual([None] * MANAGERS, outcomes)
            expected.append(condition)
            self.assertEqual(expected, self.changes())

    def test_attaches_and_detaches_do_not_notice_observations(self):
        self.report("active")
        busy = threading.Event()

        def observe():
            while not busy.is_set():
                self.observe_elsewhere()

        def cycle():
            try:
                for _ in range(CYCLES):
                    self.assertEqual(200, self.delete(self.attachment).status)
                    self.attachment = self.attached()
            finally:
                busy.set()

        self.assertEqual([None] * 3, concurrency.run_at_once(observe, observe, cycle))
        self.assert_attached(self.attachment)
        self.assertEqual("unknown", self.condition()["state"])


class RacesOnMariadb(RacesOnSqlite):
    """The same with locks of rows."""

    kind = "mariadb"


class RacesOnPostgresql(RacesOnSqlite):
    """The same with rows in several versions."""

    kind = "postgresql"
