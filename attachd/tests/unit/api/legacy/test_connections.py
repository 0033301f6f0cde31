# SPDX-License-Identifier: Apache-2.0
"""Letting hosts in and shutting them out, as far as the API goes."""

from unittest import mock

from attachd import exception
from attachd.api import guard
from attachd.api.legacy import connections, handlers
from attachd.tests import asking, rows
from attachd.tests.rows import CONNECTOR
from attachd.tests.unit.api.legacy import case


class InitializeTest(case.Case):
    def open(self, connector=CONNECTOR):
        body = {"connector": connector}
        return connections.initialize_connection(self.ctx, self.volume_id, body)

    def test_the_manager_is_asked_and_its_answer_shown(self):
        shown = self.open({**CONNECTOR, "enforce_multipath": True})["connection_info"]
        self.assertEqual("iscsi", shown["driver_volume_type"])
        self.assertEqual((1, "ro"), (shown["data"]["target_lun"], shown["data"]["access_mode"]))
        self.assertIs(True, shown["enforce_multipath"])
        (call,) = self.manager_api.open_connection.call_args_list
        self.assertEqual((self.volume_id, ""), (call.args[1].id, call.args[3]))

    def test_what_the_caller_is_denied_goes_along(self):
        with mock.patch.object(connections.several, "denied", return_value="a:rule"):
            self.open()
        self.assertEqual("a:rule", self.manager_api.open_connection.call_args.args[3])

    def test_a_connector_has_to_name_its_host(self):
        with self.assertRaisesRegex(exception.InvalidInput, "os-initialize_connection.connector"):
            self.open({"initiator": "iqn"})
        self.manager_api.open_connection.assert_not_called()

    def test_a_volume_in_maintenance_is_not_connected(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.open()

    def test_only_whom_policy_allows_to_gets_in(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "initialize_connection"):
            self.open()
        self.manager_api.open_connection.assert_not_called()


class TerminateTest(case.Case):
    def close(self, connector=CONNECTOR):
        body = {"connector": connector}
        connections.terminate_connection(self.ctx, self.volume_id, body, self.request)

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
            mock.patch.object(guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.close()
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, None)
        self.assertEqual([], self.closed())

    def test_only_whom_policy_allows_to_shuts_anybody_out(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "terminate_connection"):
            self.close()
