# SPDX-License-Identifier: Apache-2.0
"""Taking volumes, giving them back, and saying that they are attached."""

from unittest import mock

from attachd import exception
from attachd.api import detach_guard
from attachd.api.legacy import handlers
from attachd.tests import asking, rows
from attachd.tests.rows import CONNECTOR
from attachd.tests.unit.api.legacy import case


class Case(case.Case):
    def reserve(self):
        handlers.reserve(self.ctx, self.volume_id)

    def unreserve(self):
        handlers.unreserve(self.ctx, self.volume_id)


class ReserveTest(Case):
    def test_a_volume_is_taken_and_given_back(self):
        self.reserve()
        self.assertEqual("attaching", self.status())
        self.unreserve()
        self.assertEqual("available", self.status())
        self.assertEqual([], self.closed())

    def test_what_was_opened_meanwhile_is_closed(self):
        self.reserve()
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_what_is_attached_keeps_what_was_opened(self):
        self.connect()
        self.attach()
        self.unreserve()
        self.assertEqual([], self.closed())

    def test_what_may_be_another_ones_is_left_alone(self):
        rows.change_volume(self.volume_id, multiattach=True)
        self.reserve()
        self.reserve()
        self.connect()
        self.unreserve()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_when_it_cannot_be_closed_the_volume_is_not_given_back(self):
        self.reserve()
        self.connect()
        self.manager_api.terminate_connections.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.unreserve)
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_a_connect_that_never_came_to_be_is_no_use_of_the_volume(self):
        rows.add_attachment(self.volume_id, "connect_failed")
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())


class DetachingTest(Case):
    def test_it_is_begun_and_rolled_back(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.assertEqual("detaching", self.status())
        handlers.roll_detaching(self.ctx, self.volume_id)
        self.assertEqual("in-use", self.status())


class AttachTest(Case):
    def test_all_that_was_said_is_noted(self):
        self.attach(host_name="compute-1", mode="ro")
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(
            ("legacy", "attached", case.SERVER, "compute-1", "/dev/vdb", "ro", "u"),
            tuple(row[name] for name in (
                "kind", "state", "instance_uuid", "host", "mountpoint", "mode", "user_id")),
        )  # fmt: skip

    def test_an_administrators_attachment_belongs_to_the_volumes_project(self):
        self.ctx = asking.context(*asking.ADMIN, project=asking.OTHER_PROJECT)
        self.attach()
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(rows.PROJECT, row["project_id"])

    def test_a_server_is_the_same_however_its_id_is_written(self):
        server = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        for written in (server.upper(), server.replace("-", ""), server):
            self.attach(instance_uuid=written)
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(server, row["instance_uuid"])

    def test_a_volume_in_maintenance_stays_as_it_is(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.attach()


class WhoTest(Case):
    def test_readers_may_do_none_of_it(self):
        self.ctx = asking.context("reader")
        for call, rule in (
            (self.reserve, "volume_actions:reserve"),
            (self.unreserve, "volume_actions:unreserve"),
            (self.attach, "volume_actions:attach"),
            (lambda: handlers.begin_detaching(self.ctx, self.volume_id), "begin_detaching"),
            (lambda: handlers.roll_detaching(self.ctx, self.volume_id), "roll_detaching"),
        ):
            with self.assertRaisesRegex(exception.Forbidden, rule):
                call()

    def test_the_volumes_of_others_are_not_found(self):
        self.ctx = asking.context(project=asking.OTHER_PROJECT)
        for call in (self.reserve, self.unreserve, self.attach):
            self.assertRaises(exception.VolumeNotFound, call)


UNKNOWN = "99999999-9999-4999-8999-999999999999"


class DetachCase(case.Case):
    def detached(self):
        """Return the attachments that the manager was asked to detach, and where."""
        return self.asked(self.manager_api.detach)

    def asked(self, call):
        calls = call.call_args_list
        return [(call.args[1].id, call.args[1].backend) for call in calls]

    def several(self):
        rows.change_volume(self.volume_id, multiattach=True)
        return [rows.add_attachment(self.volume_id, "attached")["id"] for _ in range(2)]


class DetachTest(DetachCase):
    def detach(self, body=None):
        handlers.detach(self.ctx, self.volume_id, body, self.request)

    def test_the_only_attachment_needs_no_name(self):
        mine = rows.add_attachment(self.volume_id, "connected")["id"]
        for body in (None, {}, {"attachment_id": None}, {"attachment_id": mine}):
            self.detach(body)
        self.assertEqual([(mine, "here@fake")] * 4, self.detached())

    def test_one_of_several_needs_a_name(self):
        first, _second = self.several()
        with self.assertRaisesRegex(
            exception.InvalidVolume, f"has 2 attachments: name the one.*{first} \\(attached\\), "
        ):
            self.detach()
        self.detach({"attachment_id": first})
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_what_never_came_to_be_is_meant_only_if_there_is_nothing_else(self):
        failed = rows.add_attachment(self.volume_id, "connect_failed")["id"]
        self.detach()
        mine = rows.add_attachment(self.volume_id, "attached")["id"]
        self.detach()
        self.assertEqual([failed, mine], [each for each, _backend in self.detached()])

    def test_an_attachment_of_another_volume_is_not_taken(self):
        other = rows.add_attachment(rows.add_volume()["id"], "attached")["id"]
        with self.assertRaisesRegex(exception.InvalidInput, "an attachment of volume"):
            self.detach({"attachment_id": other})

    def test_what_is_gone_is_detached(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual([], self.detached())
        self.assertEqual("detaching", self.status())

    def test_what_is_gone_takes_nothing_from_whoever_came_after_it(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual(("attaching", []), (self.status(), self.closed()))

    def test_somebody_else_may_be_faster(self):
        rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.AttachmentNotFound(attachment_id="a")
        self.detach()

    def test_a_failure_is_told(self):
        rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.detach)

    def test_a_volume_without_attachments_is_given_back(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.detach()
        self.assertEqual(("available", []), (self.status(), self.closed()))

    def test_and_what_was_opened_with_it_is_closed_first(self):
        handlers.reserve(self.ctx, self.volume_id)
        opened = self.connect()
        self.detach()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_what_others_have_begun_is_left_alone(self):
        rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.somebody_else(), self.volume_id)
        self.connect(user_id="other")
        self.detach()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_a_volume_in_maintenance_stays_as_it_is(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.detach()

    def test_nothing_happens_before_it_is_known_that_no_server_minds(self):
        mine = rows.add_attachment(self.volume_id, "attached")["id"]
        refused = exception.AttachmentInUse(reason="no")
        with (
            mock.patch.object(detach_guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.detach({"attachment_id": mine})
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, mine)
        self.assertEqual([], self.detached())

    def test_readers_detach_nothing(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "volume_actions:detach"):
            self.detach()


class ForceTest(DetachCase):
    def setUp(self):
        super().setUp()
        self.ctx = asking.context(*asking.ADMIN)

    def detached(self):
        """Return those for which it is on record who had it done."""
        self.assertEqual([], self.asked(self.manager_api.detach))
        return self.asked(self.manager_api.force_detach)

    def force(self, **body):
        handlers.force_detach(self.ctx, self.volume_id, body, self.request)

    def test_exactly_the_one_that_was_named_is_detached(self):
        first, _second = self.several()
        self.force(attachment_id=first)
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_one_of_several_needs_a_name(self):
        self.several()
        with self.assertRaisesRegex(exception.InvalidVolume, "name the one"):
            self.force(connector=CONNECTOR)

    def test_a_connection_that_is_named_is_closed_unless_it_is_of_another_one(self):
        first, second = self.several()
        rows.change_attachment(first, user_id="u")
        mine = self.connect(user_id="u")
        self.connect(user_id="u", serves=second)
        self.connect(user_id="other")
        self.force(attachment_id=first, connector=CONNECTOR)
        self.assertEqual([(CONNECTOR, (), [mine])], self.closed())
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_without_a_connector_only_the_attachments_own_are_closed(self):
        (first, _second) = self.several()
        self.connect()
        self.force(attachment_id=first, connector=None)
        self.assertEqual([], self.closed())

    def test_a_volume_without_attachments_is_given_back(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.force()
        self.assertEqual([(None, ())], self.closed())

    def test_whoever_has_begun_it_nothing_is_left(self):
        rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.somebody_else(), self.volume_id)
        self.force()
        self.assertEqual(("available", []), (self.status(), self.kinds()))

    def test_what_is_not_there_is_not_found(self):
        with self.assertRaisesRegex(exception.AttachmentNotFound, UNKNOWN):
            self.force(attachment_id=UNKNOWN)

    def test_only_administrators_may(self):
        self.ctx = asking.context()
        with self.assertRaisesRegex(exception.Forbidden, "force_detach"):
            self.force()


class InitializeTest(case.Case):
    def open(self, connector=CONNECTOR):
        body = {"connector": connector}
        return handlers.initialize_connection(self.ctx, self.volume_id, body)

    def test_the_manager_is_asked_and_its_answer_shown(self):
        shown = self.open({**CONNECTOR, "enforce_multipath": True})["connection_info"]
        self.assertEqual("iscsi", shown["driver_volume_type"])
        self.assertEqual((1, "ro"), (shown["data"]["target_lun"], shown["data"]["access_mode"]))
        self.assertIs(True, shown["enforce_multipath"])
        (call,) = self.manager_api.initialize_connection.call_args_list
        self.assertEqual((self.volume_id, None), (call.args[1].id, call.args[3]))

    def test_what_the_caller_is_denied_goes_along(self):
        with mock.patch.object(handlers.reservation, "sharing_denied_rule", return_value="a:rule"):
            self.open()
        self.assertEqual("a:rule", self.manager_api.initialize_connection.call_args.args[3])

    def test_a_connector_has_to_name_its_host(self):
        with self.assertRaisesRegex(exception.InvalidInput, "os-initialize_connection.connector"):
            self.open({"initiator": "iqn"})
        self.manager_api.initialize_connection.assert_not_called()

    def test_a_volume_in_maintenance_is_not_connected(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.open()

    def test_only_whom_policy_allows_to_gets_in(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "initialize_connection"):
            self.open()
        self.manager_api.initialize_connection.assert_not_called()


class TerminateTest(case.Case):
    def close(self, connector=CONNECTOR):
        body = {"connector": connector}
        handlers.terminate_connection(self.ctx, self.volume_id, body, self.request)

    def test_connections_are_closed_whatever_they_serve(self):
        self.connect()
        self.attach()
        (mine,) = [row["id"] for row in rows.attachments(self.volume_id) if not row["connector"]]
        self.close()
        self.close(None)
        self.assertEqual([(CONNECTOR, None), (None, [mine])], self.closed())

    def test_without_any_the_hold_stays(self):
        handlers.reserve(self.ctx, self.volume_id)
        for connector in (CONNECTOR, None):
            self.close(connector)
        self.assertEqual("attaching", self.status())
        self.assertEqual([], self.closed())

    def test_a_host_has_to_be_named_where_several_may_be_meant(self):
        rows.change_volume(self.volume_id, multiattach=True)
        self.connect()
        self.connect(host="compute-2")
        with self.assertRaisesRegex(exception.InvalidInput, "or connections: name the host"):
            self.close(None)
        rows.change_volume(self.volume_id, multiattach=False)
        self.close(None)
        self.assertEqual([(None, [])], self.closed())

    def test_without_any_an_attached_volume_stays_as_it_is(self):
        self.attach()
        self.close()
        self.assertEqual("in-use", self.status())

    def test_a_host_has_to_be_named_where_several_servers_have_the_volume(self):
        rows.change_volume(self.volume_id, multiattach=True)
        self.attach()
        self.attach(instance_uuid=self.volume_id)
        self.connect()
        for connector in (None, {}):
            with self.assertRaisesRegex(exception.InvalidInput, "name the host"):
                self.close(connector)
        self.close()
        self.assertEqual(1, len(self.closed()))

    def test_nothing_happens_before_it_is_known_that_no_server_minds(self):
        self.connect()
        refused = exception.AttachmentInUse(reason="no")
        with (
            mock.patch.object(detach_guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.close()
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, None)
        self.assertEqual([], self.closed())

    def test_only_whom_policy_allows_to_shuts_anybody_out(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "terminate_connection"):
            self.close()
