# SPDX-License-Identifier: Apache-2.0
"""Tests of the actions that attach and detach volumes."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import detach_guard
from attachd.api.legacy import handlers
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR
from attachd.tests.unit.api.legacy import case


class Case(case.Case):
    def reserve(self):
        handlers.reserve(self.ctx, self.volume_id)

    def unreserve(self):
        handlers.unreserve(self.ctx, self.volume_id)


class ReserveTest(Case):
    def test_reserve_and_unreserve(self):
        self.reserve()
        self.assertEqual("attaching", self.status())
        self.unreserve()
        self.assertEqual("available", self.status())
        self.assertEqual([], self.closed())

    def test_unreserve_closes_connection_opened_meanwhile(self):
        self.reserve()
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_unreserve_of_attached_volume_keeps_connections(self):
        self.connect()
        self.attach()
        self.unreserve()
        self.assertEqual([], self.closed())

    def test_unreserve_keeps_rows_of_other_users(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        self.reserve()
        self.reserve()
        self.connect()
        self.unreserve()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_unreserve_with_failed_close_keeps_hold(self):
        self.reserve()
        self.connect()
        self.manager_api.terminate_connections.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.unreserve)
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_failed_attachment_does_not_block_unreserve(self):
        db_rows.add_attachment(self.volume_id, "connect_failed")
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())


class DetachingTest(Case):
    def test_begin_detaching_and_roll_detaching(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.assertEqual("detaching", self.status())
        handlers.roll_detaching(self.ctx, self.volume_id)
        self.assertEqual("in-use", self.status())


class AttachTest(Case):
    def test_attach_records_request(self):
        self.attach(host_name="compute-1", mode="ro")
        (row,) = db_rows.list_attachments(self.volume_id)
        self.assertEqual(
            ("legacy", "attached", case.SERVER, "compute-1", "/dev/vdb", "ro", "u"),
            tuple(row[name] for name in (
                "kind", "state", "instance_uuid", "host", "mountpoint", "mode", "user_id")),
        )  # fmt: skip

    def test_attach_by_admin_belongs_to_project_of_volume(self):
        self.ctx = api_context.make_context(*api_context.ADMIN, project=api_context.OTHER_PROJECT)
        self.attach()
        (row,) = db_rows.list_attachments(self.volume_id)
        self.assertEqual(db_rows.PROJECT, row["project_id"])

    def test_attach_canonicalises_server_id(self):
        server = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        for written in (server.upper(), server.replace("-", ""), server):
            self.attach(instance_uuid=written)
        (row,) = db_rows.list_attachments(self.volume_id)
        self.assertEqual(server, row["instance_uuid"])

    def test_attach_in_maintenance_is_refused(self):
        db_rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.attach()


class PermissionTest(Case):
    def test_all_actions_for_reader_are_forbidden(self):
        self.ctx = api_context.make_context("reader")
        for call, rule in (
            (self.reserve, "volume_actions:reserve"),
            (self.unreserve, "volume_actions:unreserve"),
            (self.attach, "volume_actions:attach"),
            (lambda: handlers.begin_detaching(self.ctx, self.volume_id), "begin_detaching"),
            (lambda: handlers.roll_detaching(self.ctx, self.volume_id), "roll_detaching"),
        ):
            with self.assertRaisesRegex(exception.Forbidden, rule):
                call()

    def test_all_actions_on_volume_of_other_project_are_not_found(self):
        self.ctx = api_context.make_context(project=api_context.OTHER_PROJECT)
        for call in (self.reserve, self.unreserve, self.attach):
            self.assertRaises(exception.VolumeNotFound, call)


UNKNOWN = "99999999-9999-4999-8999-999999999999"


class DetachCase(case.Case):
    def detached(self):
        """Return the attachments that the manager was asked to detach, and their backends."""
        return self.called_with(self.manager_api.detach)

    def called_with(self, call):
        calls = call.call_args_list
        return [(call.args[1].id, call.args[1].backend) for call in calls]

    def attach_two(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        return [db_rows.add_attachment(self.volume_id, "attached")["id"] for _ in range(2)]


class DetachTest(DetachCase):
    def detach(self, body=None):
        handlers.detach(self.ctx, self.volume_id, body, self.request)

    def test_detach_without_id_removes_only_attachment(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connected")["id"]
        for body in (None, {}, {"attachment_id": None}, {"attachment_id": attachment_id}):
            self.detach(body)
        self.assertEqual([(attachment_id, "here@fake")] * 4, self.detached())

    def test_detach_without_id_of_several_is_refused(self):
        first, _second = self.attach_two()
        with self.assertRaisesRegex(
            exception.InvalidVolume, f"has 2 attachments: name the one.*{first} \\(attached\\), "
        ):
            self.detach()
        self.detach({"attachment_id": first})
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_detach_without_id_prefers_used_over_failed_attachment(self):
        failed = db_rows.add_attachment(self.volume_id, "connect_failed")["id"]
        self.detach()
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        self.detach()
        self.assertEqual([failed, attachment_id], [item for item, _backend in self.detached()])

    def test_detach_of_attachment_of_other_volume_is_refused(self):
        other = db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]
        with self.assertRaisesRegex(exception.InvalidInput, "an attachment of volume"):
            self.detach({"attachment_id": other})

    def test_detach_of_deleted_attachment_succeeds(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual([], self.detached())
        self.assertEqual("detaching", self.status())

    def test_detach_of_deleted_attachment_keeps_later_ones(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual(("attaching", []), (self.status(), self.closed()))

    def test_detach_deleted_by_other_request_succeeds(self):
        db_rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.AttachmentNotFound(attachment_id="a")
        self.detach()

    def test_detach_with_failed_disconnect_raises(self):
        db_rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.detach)

    def test_detach_without_attachments_releases_volume(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.detach()
        self.assertEqual(("available", []), (self.status(), self.closed()))

    def test_detach_without_attachments_closes_connections_first(self):
        handlers.reserve(self.ctx, self.volume_id)
        opened = self.connect()
        self.detach()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_detach_keeps_rows_of_other_users(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.other_user(), self.volume_id)
        self.connect(user_id="other")
        self.detach()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_detach_in_maintenance_is_refused(self):
        db_rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.detach()

    def test_detach_of_volume_in_use_changes_nothing(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        refused = exception.AttachmentInUse(reason="no")
        with (
            mock.patch.object(detach_guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.detach({"attachment_id": attachment_id})
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, attachment_id)
        self.assertEqual([], self.detached())

    def test_detach_for_reader_is_forbidden(self):
        self.ctx = api_context.make_context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "volume_actions:detach"):
            self.detach()


class ForceDetachTest(DetachCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context(*api_context.ADMIN)

    def detached(self):
        """Return the attachments whose deletion by force was recorded."""
        self.assertEqual([], self.called_with(self.manager_api.detach))
        return self.called_with(self.manager_api.force_detach)

    def force(self, **body):
        handlers.force_detach(self.ctx, self.volume_id, body, self.request)

    def test_force_detach_removes_named_attachment_only(self):
        first, _second = self.attach_two()
        self.force(attachment_id=first)
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_force_detach_without_id_of_several_is_refused(self):
        self.attach_two()
        with self.assertRaisesRegex(exception.InvalidVolume, "name the one"):
            self.force(connector=CONNECTOR)

    def test_force_detach_with_connector_closes_unused_connection(self):
        first, second = self.attach_two()
        db_rows.change_attachment(first, user_id="u")
        attachment_id = self.connect(user_id="u")
        self.connect(user_id="u", parent_id=second)
        self.connect(user_id="other")
        self.force(attachment_id=first, connector=CONNECTOR)
        self.assertEqual([(CONNECTOR, (), [attachment_id])], self.closed())
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_force_detach_without_connector_closes_own_connections_only(self):
        (first, _second) = self.attach_two()
        self.connect()
        self.force(attachment_id=first, connector=None)
        self.assertEqual([], self.closed())

    def test_force_detach_without_attachments_releases_volume(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.force()
        self.assertEqual([(None, ())], self.closed())

    def test_force_detach_releases_rows_of_all_users(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.other_user(), self.volume_id)
        self.force()
        self.assertEqual(("available", []), (self.status(), self.kinds()))

    def test_force_detach_of_unknown_attachment_is_not_found(self):
        with self.assertRaisesRegex(exception.AttachmentNotFound, UNKNOWN):
            self.force(attachment_id=UNKNOWN)

    def test_force_detach_without_admin_is_forbidden(self):
        self.ctx = api_context.make_context()
        with self.assertRaisesRegex(exception.Forbidden, "force_detach"):
            self.force()


class InitializeTest(case.Case):
    def open(self, connector=CONNECTOR):
        body = {"connector": connector}
        return handlers.initialize_connection(self.ctx, self.volume_id, body)

    def test_initialize_connection_calls_manager_and_shows_answer(self):
        shown = self.open({**CONNECTOR, "enforce_multipath": True})["connection_info"]
        self.assertEqual("iscsi", shown["driver_volume_type"])
        self.assertEqual((1, "ro"), (shown["data"]["target_lun"], shown["data"]["access_mode"]))
        self.assertIs(True, shown["enforce_multipath"])
        (call,) = self.manager_api.initialize_connection.call_args_list
        self.assertEqual((self.volume_id, None), (call.args[1].id, call.args[3]))

    def test_initialize_connection_passes_denied_rule(self):
        with mock.patch.object(handlers.lifecycle, "sharing_denied_rule", return_value="a:rule"):
            self.open()
        self.assertEqual("a:rule", self.manager_api.initialize_connection.call_args.args[3])

    def test_initialize_connection_without_host_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "os-initialize_connection.connector"):
            self.open({"initiator": "iqn"})
        self.manager_api.initialize_connection.assert_not_called()

    def test_initialize_connection_in_maintenance_is_refused(self):
        db_rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.open()

    def test_initialize_connection_without_permission_is_forbidden(self):
        self.ctx = api_context.make_context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "initialize_connection"):
            self.open()
        self.manager_api.initialize_connection.assert_not_called()


class TerminateTest(case.Case):
    def close(self, connector=CONNECTOR):
        body = {"connector": connector}
        handlers.terminate_connection(self.ctx, self.volume_id, body, self.request)

    def test_terminate_connection_closes_connections_in_use(self):
        self.connect()
        self.attach()
        (attachment_id,) = [
            row["id"] for row in db_rows.list_attachments(self.volume_id) if not row["connector"]
        ]
        self.close()
        self.close(None)
        self.assertEqual([(CONNECTOR, None), (None, [attachment_id])], self.closed())

    def test_terminate_connection_without_connections_keeps_hold(self):
        handlers.reserve(self.ctx, self.volume_id)
        for connector in (CONNECTOR, None):
            self.close(connector)
        self.assertEqual("attaching", self.status())
        self.assertEqual([], self.closed())

    def test_terminate_connection_without_connector_of_several_is_refused(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        self.connect()
        self.connect(host="compute-2")
        with self.assertRaisesRegex(exception.InvalidInput, "or connections: name the host"):
            self.close(None)
        db_rows.change_volume(self.volume_id, multiattach=False)
        self.close(None)
        self.assertEqual([(None, [])], self.closed())

    def test_terminate_connection_without_connections_keeps_attachment(self):
        self.attach()
        self.close()
        self.assertEqual("in-use", self.status())

    def test_terminate_connection_without_connector_of_several_servers_is_refused(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        self.attach()
        self.attach(instance_uuid=self.volume_id)
        self.connect()
        for connector in (None, {}):
            with self.assertRaisesRegex(exception.InvalidInput, "name the host"):
                self.close(connector)
        self.close()
        self.assertEqual(1, len(self.closed()))

    def test_terminate_connection_of_volume_in_use_changes_nothing(self):
        self.connect()
        refused = exception.AttachmentInUse(reason="no")
        with (
            mock.patch.object(detach_guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.close()
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, None)
        self.assertEqual([], self.closed())

    def test_terminate_connection_without_permission_is_forbidden(self):
        self.ctx = api_context.make_context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "terminate_connection"):
            self.close()


STORED = {"driver_volume_type": "iscsi", "data": {"target_lun": 1, "encrypted": True}}


class ConnectionTest(unittest.TestCase):
    def test_connection_adds_defaults_to_driver_data(self):
        shown = handlers.show_connection({"connection_info": STORED, "mode": "rw"}, {"host": "h"})
        expected = {"target_lun": 1, "encrypted": True, "access_mode": "rw", "qos_specs": None,
                    "cacheable": False, "enforce_multipath": False}  # fmt: skip
        self.assertEqual(
            {
                "driver_volume_type": "iscsi",
                "data": expected,
                "enforce_multipath": False,
            },
            shown["connection_info"],
        )

    def test_enforce_multipath_comes_from_connector(self):
        answer = {"connection_info": STORED, "mode": "rw"}
        shown = handlers.show_connection(answer, {"enforce_multipath": True})["connection_info"]
        self.assertIs(True, shown["enforce_multipath"])
        self.assertIs(True, shown["data"]["enforce_multipath"])
