# SPDX-License-Identifier: Apache-2.0
"""What a manager tells of its work."""

import unittest
from unittest import mock

from oslo_context import context as oslo_context

from attachd import context, exception
from attachd.db import messages as db
from attachd.db.attachments import store as attachments_db
from attachd.db.engine.paging import Page
from attachd.manager import attach, detach, notify, volumes
from attachd.rpc import agent_api
from attachd.states import AttachmentState, Event
from attachd.tests import backends, hearing, rows
from attachd.tests.backends import override


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.heard = hearing.use(self)

    def _add(self, state, **values):
        return rows.add_volume(state, owner=backends.HOST, **values)["id"]

    def seen(self, *names):
        return [
            (each["event_type"], *(each["payload"][name] for name in names))
            for each in self.heard.messages()
        ]


class VolumeTest(Case):
    def test_a_volumes_life_is_told_from_beginning_to_end(self):
        volume_id = self._add("creating", name="disk")
        volumes.create(self.backend, volume_id)
        rows.change_volume(volume_id, state="extending", status="extending", new_size_gib=4)
        volumes.extend(self.backend, volume_id)
        rows.change_volume(volume_id, state="deleting", status="deleting")
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

    def test_a_new_volume_is_told_of_by_its_pool_and_then_by_its_backend(self):
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        rows.change_volume(volume_id, state="deleting", status="deleting")
        volumes.delete(self.backend, volume_id)
        publishers = [each["publisher_id"] for each in self.heard.messages()]
        whole, backend = f"volume.{backends.HOST}#pool", f"volume.{backends.HOST}"
        self.assertEqual([whole, whole, backend, backend], publishers)

    def test_what_fails_has_no_end(self):
        works = [("creating", volumes.create, "create"), ("deleting", volumes.delete, "delete"),
                 ("extending", volumes.extend, "extend")]  # fmt: skip
        for state, work, method in works:
            volume_id = self._add(state, new_size_gib=2)
            with self.driver.failing(method):
                work(self.backend, volume_id)
        kinds = ["volume.create.start", "volume.delete.start", "volume.resize.start"]
        self.assertEqual(kinds, self.heard.kinds())

    def test_what_is_late_is_not_told(self):
        volume_id = rows.add_volume()["id"]
        for work in (volumes.create, volumes.extend, volumes.delete):
            work(self.backend, volume_id)
        self.assertEqual([], self.heard.kinds())


class AttachmentTest(Case):
    def test_an_attach_and_a_detach_are_told(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        attach.attach_exclusive(self.backend, row["id"], volume["id"], rows.CONNECTOR)
        attach.attach_exclusive(self.backend, row["id"], volume["id"], rows.CONNECTOR)
        detach.detach(self.backend, row["id"], volume["id"])
        self.assertEqual(
            [
                ("volume.attach.start", "attaching"),
                ("volume.detach.start", "detaching"),
                ("volume.detach.end", "available"),
            ],
            self.seen("status"),
        )

    def test_what_is_refused_is_not_told(self):
        volume = rows.add_volume()
        rows.add_attachment(volume["id"], "attached", instance_uuid="a")
        other = rows.add_attachment(volume["id"], instance_uuid="b")
        with self.assertRaises(exception.NotMultiattach):
            attach.attach(self.backend, other["id"], volume["id"], rows.OTHER_CONNECTOR)
        self.assertEqual([], self.heard.kinds())

    def test_a_detach_that_fails_has_no_end_and_begins_again(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "attached")
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, row["id"], volume["id"])
        detach.detach(self.backend, row["id"], volume["id"])
        start, end = "volume.detach.start", "volume.detach.end"
        self.assertEqual([start, start, end], self.heard.kinds())

    def test_what_recovery_finishes_begins_again(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "connecting")
        attach.finish_attach(self.backend, rows.attachment(row["id"]))
        self.assertEqual(["volume.attach.start"], self.heard.kinds())

    def test_what_no_client_knows_as_an_attachment_is_not_told(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "connecting", kind="connection")
        attach.finish_attach(self.backend, rows.attachment(row["id"]))
        self.assertEqual([], self.heard.kinds())

    def test_it_is_told_as_it_is_after_the_move(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        moved = attachments_db.move(
            row["id"], volume["id"], Event.CONNECT, {"connector": rows.CONNECTOR}
        )
        notify.attachment_event(self.backend, "attach.start", moved)
        (message,) = self.heard.messages()
        payload = message["payload"]
        (shown,) = payload["volume_attachment"]
        self.assertEqual(("attaching", "attaching"), (payload["status"], shown["attach_status"]))
        self.assertEqual(f"volume.{backends.HOST}", message["publisher_id"])

    def test_one_that_is_gone_is_not_among_the_volumes(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        moved = attachments_db.move(row["id"], volume["id"], Event.CANCEL)
        notify.attachment_removed_event(self.backend, "detach.end", moved)
        (message,) = self.heard.messages()
        self.assertEqual([], message["payload"]["volume_attachment"])
        self.assertEqual("available", message["payload"]["status"])


class MessagesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        # As the one that a message from the API leaves in the thread.
        asked = context.RequestContext(request_id="req-1", overwrite=True)
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.assertEqual("req-1", asked.request_id)

    def told(self):
        return [
            (row["resource_uuid"], row["project_id"], row["action_id"], row["detail_id"])
            for row in db.page({}, Page(limit=9))
        ]

    def fail(self, state, verb, method):
        volume_id = rows.add_volume(state, owner=backends.HOST, new_size_gib=3)["id"]
        with self.driver.failing(method):
            verb(self.backend, volume_id)
        return volume_id

    def test_of_volumes(self):
        for state, verb, numbers in (
            ("creating", volumes.create, ("008", "012")),
            ("deleting", volumes.delete, ("101", "101")),
            ("extending", volumes.extend, ("007", "010")),
        ):
            volume_id = self.fail(state, verb, verb.__name__)
            self.assertEqual((volume_id, rows.PROJECT, *numbers), self.told()[0])

    def test_of_attachments(self):
        volume_id = rows.add_volume()["id"]
        mine = rows.add_attachment(volume_id)["id"]
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            attach.attach(self.backend, mine, volume_id, rows.CONNECTOR)
        self.assertEqual([(volume_id, rows.PROJECT, "004", "021")], self.told())
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, mine, volume_id)
        self.assertEqual((volume_id, rows.PROJECT, "102", "022"), self.told()[0])

    def test_a_backend_that_is_down_is_told_as_such(self):
        self.backend.error = "the cable is out"
        self.fail("creating", volumes.create, "create")
        self.assertEqual("002", self.told()[0][3])

    def test_the_request_that_asked_for_it_is_named(self):
        self.fail("creating", volumes.create, "create")
        self.assertEqual("req-1", db.page({}, Page(limit=1))[0]["request_id"])

    def test_how_long_it_is_kept_can_be_said(self):
        override(self, "message_ttl", 7, group="manager")
        self.fail("creating", volumes.create, "create")
        (row,) = db.page({}, Page(limit=1))
        self.assertEqual(7, (row["expires_at"] - row["created_at"]).total_seconds())

    def test_whatever_succeeds_is_not_told(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.told())

    def test_a_message_that_cannot_be_stored_changes_nothing(self):
        with mock.patch.object(db, "create", side_effect=ZeroDivisionError):
            volume_id = self.fail("creating", volumes.create, "create")
        self.assertEqual("error", rows.volume(volume_id)["status"])

    def test_what_somebody_else_has_changed_is_not_told(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]

        def meddle(_call):
            rows.change_volume(volume_id, state="error", status="error")
            raise exception.BackendError("The shelf burns.")

        self.driver.script = meddle
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.told())


def row(state, agent="node-1"):
    return {"id": f"of {agent}", "agent": agent, "state": state}


class AgentsOfTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.nudge = self.enterContext(mock.patch.object(agent_api, "request_reconcile"))

    def told(self):
        return [call.args[1:] for call in self.nudge.call_args_list]

    def test_those_are_told_who_may_have_a_device(self):
        for state in AttachmentState:
            notify.request_reconcile([row(state.value, state.value), row(state.value, None)])
        names = {host for host, _attachment in self.told()}
        self.assertEqual({"connected", "attached", "withdrawing"}, names)

    def test_one_who_does_not_hear_keeps_nobody_from_hearing(self):
        self.nudge.side_effect = [
            exception.AgentUnavailable(host="node-1", since="yet"),
            exception.Unavailable(reason="The queue is away."),
            RuntimeError("what is that?"),
            None,
        ]
        hosts = ["node-1", "node-2", "node-3", "node-4"]
        with self.assertLogs(notify.LOG.logger, "INFO") as logged:
            notify.request_reconcile([row("attached", host) for host in hosts])
        self.assertEqual([(host, f"of {host}") for host in hosts], self.told())
        self.assertEqual(3, len(logged.records))
