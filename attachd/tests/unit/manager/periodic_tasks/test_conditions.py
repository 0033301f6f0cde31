# SPDX-License-Identifier: Apache-2.0
"""The condition of attachments follows from reports of agents and lists of drivers."""

import dataclasses
import datetime
import unittest
from unittest import mock

from attachd import exception
from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.attachments import attachment_conditions, backend_attachments, events
from attachd.db.volumes import volume_queries
from attachd.drivers import base
from attachd.manager.periodic_tasks import conditions
from attachd.manager.periodic_tasks.conditions import ConditionTask, Evidence
from attachd.tests.fixtures import (
    backends,
    captured_notifications,
    conf_fixture,
    db_rows,
    fake_agent,
)

HOST = "h1"


def device(*states, **values):
    paths = [{"name": f"sd{'bcd'[number]}", "state": state} for number, state in enumerate(states)]
    fields = {"attachment_id": "a", "volume_id": "v", "path": "/dev/sdb", "size_bytes": 1}
    return {**fields, "paths": paths, "last_io_error": None, **values}


class DeriveTest(unittest.TestCase):
    def assert_derived(self, expected, message, seen):
        found = conditions.derive(seen)
        self.assertEqual(expected, found["state"])
        if message is None:
            self.assertIsNone(found["message"])
        else:
            self.assertIn(message, found["message"])
        return found

    def test_reported_device_is_ok(self):
        for session in (True, None):
            found = self.assert_derived("ok", None, Evidence(HOST, "", device(), session))
            self.assertEqual((True, session), (found["device_present"], found["session"]))

    def test_missing_device_has_failed(self):
        for missing in (None, device(path=None)):
            seen = Evidence(HOST, "", missing, session=True)
            found = self.assert_derived("failed", "h1 has no device", seen)
            self.assertEqual((False, []), (found["device_present"], found["paths"]))

    def test_some_failed_paths_degrade_and_all_fail(self):
        for state, states in (
            ("ok", ("active", "active")),
            ("degraded", ("active", "failed")),
            ("failed", ("failed", "failed")),
        ):
            message = None if state == "ok" else "sdc"
            found = self.assert_derived(state, message, Evidence(HOST, "", device(*states)))
            self.assertEqual([*states], [path["state"] for path in found["paths"]])

    def test_device_without_session_is_degraded(self):
        seen = Evidence(HOST, "", device(), session=False)
        self.assert_derived("degraded", "lists no session of host h1", seen)

    def test_last_io_error_does_not_change_the_state(self):
        seen = Evidence(HOST, "", device(last_io_error="sdb: 3 failed requests"))
        found = self.assert_derived("ok", None, seen)
        self.assertEqual("sdb: 3 failed requests", found["last_io_error"])

    def test_sizes_of_device_and_file_system_do_not_change_the_state(self):
        said = {"filesystem": "xfs", "filesystem_bytes": 5, "growth": "xfs is smaller"}
        found = self.assert_derived("ok", None, Evidence(HOST, "", device(size_bytes=9, **said)))
        self.assertEqual(
            {
                "device_bytes": 9,
                "filesystem": "xfs",
                "filesystem_bytes": 5,
                "message": "xfs is smaller",
            },
            found["growth"],
        )
        for shorter in (device(), device(path=None, **said)):
            self.assertIsNone(conditions.derive(Evidence(HOST, "", shorter))["growth"])

    def test_condition_without_report_is_unknown_for_its_reason(self):
        for session in (True, False, None):
            seen = Evidence(HOST, "The agent is away.", device(), session)
            found = self.assert_derived("unknown", "The agent is away.", seen)
            self.assertEqual((None, []), (found["device_present"], found["paths"]))

    def test_condition_without_agent_depends_on_session(self):
        for session, state, message in (
            (True, "ok", None),
            (False, "unknown", "lists no session of its host, which may be off"),
            (None, "unknown", "No agent reports it"),
        ):
            self.assert_derived(state, message, Evidence(session=session))


class ObserveCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.connected = set()
        real = self.driver.list_exports
        self.enterContext(
            mock.patch.object(
                self.driver,
                "list_exports",
                lambda: [
                    dataclasses.replace(item, sessions=item.holders & self.connected)
                    for item in real()
                ],
            )
        )
        self.long_ago = models.now() - datetime.timedelta(hours=1)
        self.volume = db_rows.add_volume()["id"]
        agent_store.create(HOST, "key")

    def list_sessions(self):
        """Have the driver list sessions."""
        self.driver.promises = dataclasses.replace(self.driver.promises, session_listing=True)

    def add(self, agent=HOST, **values):
        values = {"connector": {"host": HOST}, "attached_at": self.long_ago, **values}
        return db_rows.add_attachment(self.volume, "attached", agent=agent, **values)["id"]

    def report(self, attachment, **values):
        agent_store.record_report(HOST, {"devices": [device(attachment_id=attachment, **values)]})

    def observe(self):
        conditions.observe(self.backend)

    def condition(self, attachment):
        return db_rows.get_attachment(attachment)["observed"]

    def state(self, attachment):
        self.observe()
        return (self.condition(attachment) or {}).get("state")

    def events(self, attachment):
        known = events.list_of_attachment(attachment, None)
        found = [event for event in known if event["type"] == events.CONDITION_CHANGED]
        return [event["details"]["condition"]["state"] for event in found]


class ObserveTest(ObserveCase):
    def test_condition_follows_the_reports_of_the_agent(self):
        attachment = self.add()
        self.assertIsNone(self.state(attachment))
        self.report(attachment)
        self.assertEqual("ok", self.state(attachment))
        self.report(attachment, path=None)
        self.assertEqual("failed", self.state(attachment))
        self.report(attachment)
        self.assertEqual("ok", self.state(attachment))
        self.assertEqual(["failed", "ok"], self.events(attachment))

    def test_attachments_of_all_pages_are_observed(self):
        attachments = []
        for _ in range(3):
            self.volume = db_rows.add_volume()["id"]
            attachments.append(self.add())
        devices = [device(attachment_id=attachment) for attachment in attachments]
        agent_store.record_report(HOST, {"devices": devices})
        with mock.patch.object(volume_queries, "PAGE", 2):
            self.observe()
        self.assertEqual(["ok"] * 3, [self.condition(item)["state"] for item in attachments])

    def test_attachments_of_hosts_of_all_pages_are_observed(self):
        attachments, hosts = [], ["h1", "h2", "h3"]
        for host in hosts:
            fake_agent.report_agent(host)
            attachments.append(self.add(host, host=host))
            devices = [device(attachment_id=attachments[-1])]
            agent_store.record_report(host, {"devices": devices})
        for name in ("_HOSTS_OF_PAGE", "_REPORTS_OF_PAGE"):
            with self.subTest(name), mock.patch.object(conditions, name, 2):
                db_rows.change_attachment(attachments[2], observed=None, condition_state=None)
                self.observe()
            self.assertEqual(["ok"] * 3, [self.condition(item)["state"] for item in attachments])

    def test_page_of_hosts_is_limited_by_hosts_and_by_attachments(self):
        sizes = {"h1": 5, "h2": 1, "h3": 2, "h4": 1, "h5": 1, "h6": 1}
        for host, number in sizes.items():
            for _ in range(number):
                self.add(host, host=host)
        pages = []
        with (
            mock.patch.object(conditions, "_HOSTS_OF_PAGE", 2),
            mock.patch.object(conditions, "_ATTACHMENTS_OF_PAGE", 3),
            mock.patch.object(
                backend_attachments, "list_of_agents", lambda _, hosts: pages.append(hosts) or []
            ),
        ):
            self.observe()
        self.assertEqual([["h1"], ["h2", "h3"], ["h4", "h5"], ["h6"]], pages)

    def test_first_good_condition_is_no_event_and_a_bad_one_is(self):
        good, bad = self.add(), self.add()
        self.report(good)
        self.assertEqual("ok", self.state(good))
        self.assertEqual("failed", self.state(bad))
        self.assertEqual(([], ["failed"]), (self.events(good), self.events(bad)))

    def test_unchanged_condition_is_stored_once(self):
        attachment = self.add()
        self.report(attachment)
        self.observe()
        before = db_rows.get_attachment(attachment)
        with mock.patch.object(attachment_conditions, "record") as record:
            self.observe()
        record.assert_not_called()
        self.assertEqual(before, db_rows.get_attachment(attachment))

    def test_growth_of_device_and_file_system_are_events(self):
        attachment = self.add()
        said = {"size_bytes": 1, "filesystem": "xfs", "filesystem_bytes": 1, "growth": None}
        for more, events_until_now in (
            ({}, 0),
            ({"size_bytes": 2, "growth": "xfs has 1 of 2"}, 1),
            ({"size_bytes": 2, "growth": "xfs has 1 of 2: no"}, 2),
            ({"size_bytes": 2, "growth": None, "filesystem_bytes": 2}, 3),
            ({"size_bytes": 2, "filesystem_bytes": 2, "last_io_error": "sdb"}, 3),
            ({"size_bytes": 2, "filesystem": None, "filesystem_bytes": None}, 3),
        ):
            self.report(attachment, **{**said, **more})
            self.observe()
            self.assertEqual(["ok"] * events_until_now, self.events(attachment), more)

    def test_change_of_details_keeps_the_time_of_the_state(self):
        attachment = self.add()
        self.report(attachment)
        self.observe()
        before = self.condition(attachment)
        self.report(attachment, last_io_error="sdb: 3 failed requests")
        self.observe()
        after = self.condition(attachment)
        self.assertEqual({**before, "last_io_error": "sdb: 3 failed requests"}, after)
        self.assertEqual([], self.events(attachment))

    def test_condition_is_no_change_of_the_attachment(self):
        attachment = self.add()
        self.report(attachment)
        before = db_rows.get_attachment(attachment)
        self.assertEqual("ok", self.state(attachment))
        after = db_rows.get_attachment(attachment)
        for name in ("state", "generation", "updated_at", "error"):
            self.assertEqual(before[name], after[name], name)

    def test_report_that_may_be_older_than_the_attach_says_nothing_of_a_missing_device(self):
        attachment = self.add(attached_at=models.now())
        agent_store.record_report(HOST, {"devices": []})
        self.assertIsNone(self.state(attachment))
        self.report(attachment)
        self.assertEqual("ok", self.state(attachment))
        agent_store.record_report(HOST, {"devices": []})
        self.assertEqual("unknown", self.state(attachment))
        self.assertIn("has not reported since", self.condition(attachment)["message"])

    def test_report_with_error_says_nothing_of_devices(self):
        attachment = self.add()
        self.report(attachment)
        self.observe()
        agent_store.record_report(HOST, {"devices": [], "error": "It has a name of host h2."})
        self.assertEqual("unknown", self.state(attachment))
        message = self.condition(attachment)["message"]
        self.assertIn("agent-show h1", message)
        self.assertNotIn("h2", message)

    def test_silent_agent_makes_condition_unknown(self):
        attachment = self.add()
        self.report(attachment)
        self.observe()
        db_rows.change_agent(HOST, seen_at=self.long_ago)
        self.assertEqual("unknown", self.state(attachment))
        self.assertEqual(["unknown"], self.events(attachment))

    def test_host_whose_agent_was_removed_makes_condition_unknown(self):
        attachment = self.add()
        self.report(attachment)
        self.observe()
        agent_store.force_delete(HOST)
        self.assertEqual("unknown", self.state(attachment))
        self.assertIn("No agent of host h1 is known", self.condition(attachment)["message"])

    def test_other_host_does_not_report_about_an_attachment(self):
        attachment = self.add(agent="h2")
        agent_store.create("h2", "key")
        agent_store.record_report("h2", {"devices": []})
        self.report(attachment)
        self.assertEqual("failed", self.state(attachment))

    def test_session_of_attachment_without_agent_is_its_condition(self):
        self.list_sessions()
        attachment = self.add(agent=None)
        self.driver.grant(
            base.VolumeRef(self.volume, 1),
            base.Export(attachment, {"host": HOST}),
        )
        self.assertEqual("unknown", self.state(attachment))
        self.assertFalse(self.condition(attachment)["session"])
        self.connected.add(attachment)
        self.assertEqual("ok", self.state(attachment))
        self.assertTrue(self.condition(attachment)["session"])
        with self.driver.failing("list_exports"):
            self.assertEqual("unknown", self.state(attachment))
        self.assertIsNone(self.condition(attachment)["session"])
        self.assertEqual(["ok", "unknown"], self.events(attachment))

    def test_session_of_other_attachment_does_not_count(self):
        self.list_sessions()
        attachment, other = self.add(), self.add(agent=None)
        self.report(attachment)
        self.connected.add(other)
        self.assertEqual("degraded", self.state(attachment))

    def test_nothing_is_stored_if_nothing_can_be_known(self):
        attachment = self.add(agent=None)
        made_by_os_attach = self.add(agent=None, connector=None, kind="legacy")
        self.observe()
        self.list_sessions()
        self.assertIsNone(self.state(made_by_os_attach))
        self.assertEqual("unknown", self.state(attachment))

    def test_backend_that_is_down_lists_no_sessions(self):
        self.list_sessions()
        attachment = self.add()
        self.report(attachment)
        self.backend.take_down(exception.BackendError("gone"))
        self.assertEqual("ok", self.state(attachment))
        self.assertIsNone(self.condition(attachment)["session"])
        self.assertNotIn("list_exports", [call.method for call in self.driver.calls])

    def test_only_attached_attachments_are_observed(self):
        made = db_rows.add_attachment(self.volume, "connected", agent=HOST)
        self.observe()
        self.assertIsNone(self.condition(made["id"]))

    def test_change_is_notified(self):
        notified = captured_notifications.use(self)
        attachment = self.add()
        for path in ("/dev/sdb", None):
            self.report(attachment, path=path)
            self.observe()
        (message,) = notified.messages()
        self.assertEqual("volume.attach.condition", message["event_type"])
        payload = message["payload"]
        self.assertEqual(self.volume, payload["volume_id"])
        said = payload["condition"]
        self.assertEqual((attachment, "failed"), (said["attachment_id"], said["state"]))


class OtherDevicesTest(ObserveCase):
    """Attachments whose devices no agent makes, on hosts with an agent."""

    def setUp(self):
        super().setUp()
        self.attachment = self.add(agent=None, host=HOST)
        self.enterContext(mock.patch.object(type(self.driver), "KERNEL_DEVICES", True))

    def report_other(self, *devices, **values):
        found = [{**device(), "attachment_id": None, "target": "t", **item} for item in devices]
        observed = {"devices": found, "asked": []}
        said = {"connector_type": "kernel", "devices": [], "observed": observed, **values}
        agent_store.record_report(HOST, said)

    def of_volume(self, *states, **values):
        return {**device(*states), "volume_id": self.volume, "attachment_id": None, **values}

    def seen(self):
        self.observe()
        return self.condition(self.attachment) or {}

    def test_device_of_compute_has_the_condition_that_the_agent_reports(self):
        self.report_other(
            self.of_volume("active", "failed", last_io_error="sdc is offline", size_bytes=2**30)
        )
        found = self.seen()
        self.assertEqual(
            ("degraded", True, "sdc is offline", 2**30),
            (
                found["state"],
                found["device_present"],
                found["last_io_error"],
                found["growth"]["device_bytes"],
            ),
        )
        self.assertIn("Paths of host h1 have failed: sdc", found["message"])

    def test_device_that_is_gone_is_no_failure(self):
        self.report_other(self.of_volume())
        self.assertEqual("ok", self.seen()["state"])
        for gone in ([], [self.of_volume(path=None, size_bytes=None)]):
            self.report_other(*gone)
            found = self.seen()
            self.assertEqual(("unknown", False), (found["state"], found["device_present"]))
            self.assertIn("server is stopped", found["message"])

    def test_absence_of_an_answer_is_no_answer(self):
        late = {"seen_at": self.long_ago}
        for case, values, changes in (
            ("another service", {}, {}),
            ("user space", {"connector_type": "user-space"}, {}),
            ("not reported", {"observed": None}, {}),
            ("silent", {}, late),
        ):
            devices = [] if case != "another service" else [device()]
            self.report_other(*devices, **values)
            if changes:
                db_rows.change_agent(HOST, **changes)
            with mock.patch.object(type(self.driver), "KERNEL_DEVICES", case == "silent"):
                found = self.seen()
            self.assertIsNone(found.get("device_present"), case)

    def test_device_of_the_agent_may_serve_another_attachment(self):
        own = {**device(), "volume_id": self.volume}
        self.report_other(devices=[own])
        self.assertIsNone(self.seen().get("device_present"))

    def test_new_attachment_without_a_device_may_be_younger_than_the_report(self):
        db_rows.change_attachment(self.attachment, attached_at=models.now())
        self.report_other()
        self.assertEqual({}, self.seen())
        self.report_other(self.of_volume())
        self.assertEqual("ok", self.seen()["state"])

    def test_session_of_the_backend_outweighs_a_report_without_device(self):
        self.list_sessions()
        export = base.Export(self.attachment, {"host": HOST})
        self.driver.grant(base.VolumeRef(self.volume, 1), export)
        self.connected.add(self.attachment)
        self.report_other()
        found = self.seen()
        self.assertEqual(
            ("ok", None, True), (found["state"], found["device_present"], found["session"])
        )

    def test_problem_of_the_agent_does_not_hide_devices_of_others(self):
        self.report_other(self.of_volume(), error="Host h1 lacks: iscsiadm.")
        self.assertEqual("ok", self.seen()["state"])

    def test_other_host_says_nothing_of_an_attachment(self):
        agent_store.create("h2", "key")
        said = {"devices": [{**self.of_volume("failed"), "target": "t"}], "asked": []}
        agent_store.record_report("h2", {"connector_type": "kernel", "observed": said})
        self.assertEqual({}, self.seen())


class TaskTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.task = ConditionTask(self.backend)
        self.observe = self.enterContext(mock.patch.object(conditions, "observe"))

    def test_first_observation_waits_for_reports(self):
        conf_fixture.override(self, "condition_interval", 5, "manager")
        self.assertEqual(5.0, self.task.interval())
        self.task.run_once()
        self.observe.assert_not_called()
        self.task.run_once()
        self.observe.assert_called_once_with(self.backend)

    def test_observation_after_failure_waits_for_reports(self):
        self.task.run_once()
        self.task._handle_failure(exception.Unavailable(reason="the database is away"))
        self.task.run_once()
        self.observe.assert_not_called()

    def test_task_without_interval_does_nothing(self):
        conf_fixture.override(self, "condition_interval", 0, "manager")
        for _ in range(2):
            self.task.run_once()
        self.observe.assert_not_called()
        self.assertGreater(self.task.interval(), 0)
