# SPDX-License-Identifier: Apache-2.0
"""Notifications, messages and requests to agents about operations of a manager."""

import unittest
from unittest import mock

from oslo_context import context as oslo_context

from attachd import context, exception
from attachd.db import messages
from attachd.db.attachments import attachment_store
from attachd.db.engine.paging import Page
from attachd.manager import attach, detach, notify, volumes
from attachd.rpc import agent_api
from attachd.states import AttachmentState, Event
from attachd.tests.fixtures import backends, captured_notifications, db_rows
from attachd.tests.fixtures.conf_fixture import override


class Case(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)

    def _add(self, state, **values):
        return db_rows.add_volume(state, owner=backends.HOST, **values)["id"]

    def seen(self, *names):
        return [
            (message["event_type"], *(message["payload"][name] for name in names))
            for message in self.notifications.messages()
        ]


class VolumeEventTest(Case):
    def test_volume_events_cover_create_extend_and_delete(self):
        volume_id = self._add("creating", name="disk")
        volumes.create(self.backend, volume_id)
        db_rows.change_volume(volume_id, state="extending", status="extending", new_size_gib=4)
        volumes.extend(self.backend, volume_id)
        db_rows.change_volume(volume_id, state="deleting", status="deleting")
        volumes.delete(self.backend, volume_id)
        self.assertEqual(
            [
                ("volume.create.start", "creating", 1, "disk"),
                ("volume.create.end", "available", 1, "disk"),
                ("volume.resize.start", "extending", 1, "disk"),
                ("volume.resize.end", "available", 4, "disk"),
                ("volume.delete.start", "deleting", 4, "disk"),
                ("volume.delete.end", "deleted", 4, "disk"),
            ],
            self.seen("status", "size", "display_name"),
        )

    def test_volume_create_event_names_pool_then_backend(self):
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        db_rows.change_volume(volume_id, state="deleting", status="deleting")
        volumes.delete(self.backend, volume_id)
        publishers = [message["publisher_id"] for message in self.notifications.messages()]
        whole, backend = f"volume.{backends.HOST}#pool", f"volume.{backends.HOST}"
        self.assertEqual([whole, whole, backend, backend], publishers)

    def test_volume_failure_sends_no_end_event(self):
        works = [("creating", volumes.create, "create"), ("deleting", volumes.delete, "delete"),
                 ("extending", volumes.extend, "extend")]  # fmt: skip
        for state, work, method in works:
            volume_id = self._add(state, new_size_gib=2)
            with self.driver.failing(method):
                work(self.backend, volume_id)
        kinds = ["volume.create.start", "volume.delete.start", "volume.resize.start"]
        self.assertEqual(kinds, self.notifications.event_types())

    def test_volume_late_message_sends_no_event(self):
        volume_id = db_rows.add_volume()["id"]
        for work in (volumes.create, volumes.extend, volumes.delete):
            work(self.backend, volume_id)
        self.assertEqual([], self.notifications.event_types())


class AttachmentEventTest(Case):
    def test_attach_and_detach_send_events(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"])
        attach.attach_exclusive(self.backend, row["id"], volume["id"], db_rows.CONNECTOR)
        attach.attach_exclusive(self.backend, row["id"], volume["id"], db_rows.CONNECTOR)
        detach.detach(self.backend, row["id"], volume["id"])
        self.assertEqual(
            [
                ("volume.attach.start", "attaching"),
                ("volume.detach.start", "detaching"),
                ("volume.detach.end", "available"),
            ],
            self.seen("status"),
        )

    def test_attach_refused_sends_no_event(self):
        volume = db_rows.add_volume()
        db_rows.add_attachment(volume["id"], "attached", instance_uuid="a")
        other = db_rows.add_attachment(volume["id"], instance_uuid="b")
        with self.assertRaises(exception.NotMultiattach):
            attach.attach(self.backend, other["id"], volume["id"], db_rows.OTHER_CONNECTOR)
        self.assertEqual([], self.notifications.event_types())

    def test_detach_failure_sends_no_end_and_retry_sends_start(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"], "attached")
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, row["id"], volume["id"])
        detach.detach(self.backend, row["id"], volume["id"])
        start, end = "volume.detach.start", "volume.detach.end"
        self.assertEqual([start, start, end], self.notifications.event_types())

    def test_recovery_sends_start_event_again(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"], "connecting")
        attach.finish_attach(self.backend, db_rows.get_attachment(row["id"]))
        self.assertEqual(["volume.attach.start"], self.notifications.event_types())

    def test_legacy_connection_sends_no_attachment_event(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"], "connecting", kind="connection")
        attach.finish_attach(self.backend, db_rows.get_attachment(row["id"]))
        self.assertEqual([], self.notifications.event_types())

    def test_attachment_event_shows_row_after_move(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"])
        transitioned = attachment_store.transition(
            row["id"], volume["id"], Event.CONNECT, {"connector": db_rows.CONNECTOR}
        )
        notify.attachment_event(self.backend, "attach.start", transitioned)
        (message,) = self.notifications.messages()
        payload = message["payload"]
        (shown,) = payload["volume_attachment"]
        self.assertEqual(("attaching", "attaching"), (payload["status"], shown["attach_status"]))
        self.assertEqual(f"volume.{backends.HOST}", message["publisher_id"])

    def test_attachment_removed_event_omits_removed_attachment(self):
        volume = db_rows.add_volume()
        row = db_rows.add_attachment(volume["id"])
        transitioned = attachment_store.transition(row["id"], volume["id"], Event.CANCEL)
        notify.attachment_removed_event(self.backend, "detach.end", transitioned)
        (message,) = self.notifications.messages()
        self.assertEqual([], message["payload"]["volume_attachment"])
        self.assertEqual("available", message["payload"]["status"])


class MessagesTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        # As the context that an RPC call of the API sets in the thread.
        asked = context.RequestContext(request_id="req-1", overwrite=True)
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.assertEqual("req-1", asked.request_id)

    def sent(self):
        return [
            (row["resource_uuid"], row["project_id"], row["action_id"], row["detail_id"])
            for row in messages.page({}, Page(limit=9))
        ]

    def make_fail(self, state, verb, method):
        volume_id = db_rows.add_volume(state, owner=backends.HOST, new_size_gib=3)["id"]
        with self.driver.failing(method):
            verb(self.backend, volume_id)
        return volume_id

    def test_message_about_failed_volume_operations_is_stored(self):
        for state, verb, numbers in (
            ("creating", volumes.create, ("008", "012")),
            ("deleting", volumes.delete, ("101", "101")),
            ("extending", volumes.extend, ("007", "010")),
        ):
            volume_id = self.make_fail(state, verb, verb.__name__)
            self.assertEqual((volume_id, db_rows.PROJECT, *numbers), self.sent()[0])

    def test_message_about_failed_attachment_operations_is_stored(self):
        volume_id = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume_id)["id"]
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            attach.attach(self.backend, attachment_id, volume_id, db_rows.CONNECTOR)
        self.assertEqual([(volume_id, db_rows.PROJECT, "004", "021")], self.sent())
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, attachment_id, volume_id)
        self.assertEqual((volume_id, db_rows.PROJECT, "102", "022"), self.sent()[0])

    def test_message_with_backend_down_has_that_detail(self):
        self.backend.error = "the cable is out"
        self.make_fail("creating", volumes.create, "create")
        self.assertEqual("002", self.sent()[0][3])

    def test_message_names_request_id(self):
        self.make_fail("creating", volumes.create, "create")
        self.assertEqual("req-1", messages.page({}, Page(limit=1))[0]["request_id"])

    def test_message_expires_after_configured_time(self):
        override(self, "message_ttl", 7, group="manager")
        self.make_fail("creating", volumes.create, "create")
        (row,) = messages.page({}, Page(limit=1))
        self.assertEqual(7, (row["expires_at"] - row["created_at"]).total_seconds())

    def test_message_about_success_is_not_stored(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.sent())

    def test_message_store_failure_does_not_affect_operation(self):
        with mock.patch.object(messages, "create", side_effect=ZeroDivisionError):
            volume_id = self.make_fail("creating", volumes.create, "create")
        self.assertEqual("error", db_rows.get_volume(volume_id)["status"])

    def test_message_about_row_changed_by_others_is_not_stored(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]

        def meddle(_call):
            db_rows.change_volume(volume_id, state="error", status="error")
            raise exception.BackendError("The backend failed.")

        self.driver.script = meddle
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.sent())


def row(state, agent="node-1"):
    return {"id": f"of {agent}", "agent": agent, "state": state}


class RequestReconcileTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.request_reconcile = self.enterContext(mock.patch.object(agent_api, "reconcile"))

    def sent(self):
        return [call.args[1:] for call in self.request_reconcile.call_args_list]

    def test_request_reconcile_calls_agents_that_may_have_device(self):
        for state in AttachmentState:
            notify.request_reconcile([row(state.value, state.value), row(state.value, None)])
        names = {host for host, _attachment in self.sent()}
        self.assertEqual({"connected", "attached", "withdrawing"}, names)

    def test_request_reconcile_failure_does_not_affect_others(self):
        self.request_reconcile.side_effect = [
            exception.AgentUnavailable(host="node-1", since="yet"),
            exception.Unavailable(reason="The queue is away."),
            RuntimeError("what is that?"),
            None,
        ]
        hosts = ["node-1", "node-2", "node-3", "node-4"]
        with self.assertLogs(notify.LOG.logger, "INFO") as logged:
            notify.request_reconcile([row("attached", host) for host in hosts])
        self.assertEqual([(host, f"of {host}") for host in hosts], self.sent())
        self.assertEqual(3, len(logged.records))
