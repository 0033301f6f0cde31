# SPDX-License-Identifier: Apache-2.0
"""Tests of attachments as answers show them."""

import datetime
import unittest
from unittest import mock

from attachd import objects
from attachd.api import policy_rules
from attachd.api.attachments import view
from attachd.objects import Attachment
from attachd.tests.fixtures import api_context, db_rows

MOMENT = datetime.datetime(2026, 1, 31)  # noqa: DTZ001  as the tables store it
ISCSI = {
    "driver_volume_type": "iscsi",
    "data": {"target_lun": 1, "auth_password": "secret", "access_mode": "ro", "encrypted": True},
}

MULTIPATH = {"enforce_multipath": True}


def row(**values):
    return {
        "id": "a1",
        "state": "reserved",
        "instance_uuid": None,
        "kind": "attachment",
        "expires_at": None,
        "error": None,
        "agent": None,
        "device": None,
        "volume_id": "v1",
        "project_id": db_rows.PROJECT,
        "user_id": "u",
        "attached_at": None,
        "mode": None,
        "connection_info": None,
        "connector": None,
        "host": None,
        "mountpoint": None,
        "move_from": None,
        "connection_key": None,
        "created_at": MOMENT,
        "updated_at": None,
        "volume_host": None,
        "volume_status": "reserved",
        **values,
    }


class ViewTest(api_context.ApiContextCase):
    def test_summary_has_four_keys(self):
        self.assertEqual(
            {"id": "a1", "status": "reserved", "instance": None, "volume_id": "v1"},
            view.summary(row(connection_info=ISCSI)),
        )

    def test_detail_of_reservation_has_empty_values(self):
        shown = view.detail(row())
        self.assertEqual(("", ""), (shown["attached_at"], shown["detached_at"]))
        self.assertEqual("null", shown["attach_mode"])
        self.assertEqual({}, shown["connection_info"])

    def test_status_is_wire_state(self):
        self.assertEqual("attaching", view.summary(row(state="connected"))["status"])
        self.assertEqual("error_detaching", view.summary(row(state="disconnect_failed"))["status"])

    def test_connection_info_is_flat_and_complete(self):
        connected = row(connection_info=ISCSI, mode="ro", attached_at=MOMENT)
        shown = view.detail(connected)
        self.assertEqual((MOMENT, "ro"), (shown["attached_at"], shown["attach_mode"]))
        self.assertEqual(
            {
                "driver_volume_type": "iscsi",
                "attachment_id": "a1",
                "target_lun": 1,
                "auth_password": "secret",
                "access_mode": "ro",
                "encrypted": True,
                "cacheable": False,
                "qos_specs": None,
                "enforce_multipath": False,
            },
            shown["connection_info"],
        )

    def test_legacy_attachment_has_null_connection_info(self):
        attached = row(state="attached", kind="legacy")
        self.assertIsNone(view.detail(attached)["connection_info"])
        self.assertEqual({}, view.detail(row(state="attached"))["connection_info"])
        (shown,) = view.list_details(api_context.make_context("reader"), [attached])["attachments"]
        self.assertIsNone(shown["connection_info"])

    def test_enforce_multipath_comes_from_connector(self):
        connected = row(connection_info=ISCSI, connector=MULTIPATH)
        self.assertIs(True, view.detail(connected)["connection_info"]["enforce_multipath"])

    def test_show_connected_shows_previous_state(self):
        before = Attachment.from_row(None, row())
        answer = {"connection_info": ISCSI, "mode": "ro"}
        ctx = api_context.make_context()
        shown = view.show_connected(ctx, before, answer, {"host": "h", **MULTIPATH})["attachment"]
        self.assertEqual(
            ("reserved", "null", ""),
            (shown["status"], shown["attach_mode"], shown["attached_at"]),
        )
        self.assertEqual("iscsi", shown["connection_info"]["driver_volume_type"])
        self.assertIs(True, shown["connection_info"]["enforce_multipath"])

    def test_ext_detail_shows_host_and_sharing_attachments(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        values = {"mountpoint": "/dev/vdb", "error": "The backend failed."}
        values |= {"agent": "compute-1", "device": "/dev/sdc"}
        attachment, other = (
            db_rows.add_attachment(volume, "attached", connection_key="1" * 64, **values)
            for _item in range(2)
        )
        ctx = api_context.make_context("reader", attachd_version=(1, 0))
        shown = view.show(ctx, Attachment.get(ctx, attachment["id"]))["attachment"]
        expected = {
            "project_id": db_rows.PROJECT,
            "attached_host": "compute-1",
            "mountpoint": "/dev/vdb",
            "expires_at": None,
            "error": "The backend failed.",
            "reason_code": "attachd.agent_error",
            "agent": "compute-1",
            "device": "/dev/sdc",
            "shared_connections_by_attachment": [other["id"]],
        }
        self.assertEqual(expected, {key: shown[key] for key in expected})
        ctx.attachd_version = None
        plain = view.show(ctx, Attachment.get(ctx, attachment["id"]))["attachment"]
        self.assertEqual(set(expected), set(shown) - set(plain))

    def test_show_connected_shows_host_of_connector(self):
        volume = db_rows.add_volume()["id"]
        ctx = api_context.make_context(attachd_version=(1, 0))
        before = Attachment.get(ctx, db_rows.add_attachment(volume)["id"])
        answer = {"connection_info": ISCSI, "mode": "rw"}
        for values, mountpoint in (({}, "na"), ({"mountpoint": "/dev/vdc"}, "/dev/vdc")):
            connector = {"host": "compute-7", **values}
            shown = view.show_connected(ctx, before, answer, connector)["attachment"]
            self.assertEqual(
                ("compute-7", mountpoint), (shown["attached_host"], shown["mountpoint"])
            )
            self.assertEqual([], shown["shared_connections_by_attachment"])

    def test_list_remaining_reads_no_secrets(self):
        without = {key: row()[key] for key in ("id", "state", "instance_uuid", "volume_id")}
        shown = view.list_remaining([Attachment.from_row(None, without)])
        self.assertEqual({"attachments": [view.summary(row())]}, shown)

    def test_lists_are_short_or_full(self):
        page = [row(), row(id="a2")]
        self.assertEqual(
            ["a1", "a2"],
            [attachment["id"] for attachment in view.list_summaries(page)["attachments"]],
        )
        full = view.list_details(api_context.make_context(), page)["attachments"]
        self.assertIn("connection_info", full[0])

    def test_connection_info_for_reader_has_no_secrets(self):
        page = [row(connection_info=ISCSI), row(connection_info=ISCSI, project_id="other")]
        for roles, expected in (
            (("reader",), (False, False)),
            (("member", "reader"), (True, False)),
            (("admin",), (True, True)),
        ):
            full = view.list_details(api_context.make_context(*roles), page)["attachments"]
            seen = tuple("auth_password" in item["connection_info"] for item in full)
            self.assertEqual(expected, seen, roles)
            self.assertEqual({1}, {item["connection_info"]["target_lun"] for item in full})

    def test_connection_info_of_attachment_with_agent_has_no_secrets(self):
        served = row(connection_info=ISCSI, agent="h")
        for roles in ("member", "reader"), ("admin",), ("service",):
            ctx = api_context.make_context(*roles)
            (listed,) = view.list_details(ctx, [served])["attachments"]
            shown = view.show(ctx, Attachment.from_row(None, served))["attachment"]
            for found in (listed, shown):
                self.assertNotIn("auth_password", found["connection_info"], roles)
                self.assertEqual(1, found["connection_info"]["target_lun"])


class RedactTest(unittest.TestCase):
    def test_redact_keeps_other_values(self):
        connection = {
            "driver_volume_type": "iscsi",
            "auth_method": "CHAP",
            "auth_username": "u",
            "auth_password": "x",
            "discovery_auth_password": "x",
            "keyring": "x",
            "secret_type": "ceph",
            "secret_uuid": "1",
            "encryption_key_id": "2",
            "portals": [{"host": "h", "Dhchap_Key": "x", "ports": ["1"]}, ("a", {"token": "x"})],
            "data": {
                "volume_passwd": "x",
                "secret": "x",
                "target_lun": 1,
                "credentials": {"user": "u"},
            },
            "qos_specs": None,
        }
        self.assertEqual(
            {
                "driver_volume_type": "iscsi",
                "auth_method": "CHAP",
                "auth_username": "u",
                "secret_type": "ceph",
                "secret_uuid": "1",
                "encryption_key_id": "2",
                "portals": [{"host": "h", "ports": ["1"]}, ["a", {}]],
                "data": {"target_lun": 1},
                "qos_specs": None,
            },
            objects.redact(connection),
        )
        self.assertEqual({}, objects.redact({}))
        self.assertIsNone(objects.redact(None))


class SecretVisibilityTest(api_context.ApiContextCase):
    def may_see(self, *roles, project=db_rows.PROJECT, service=()):
        ctx = api_context.make_context(*roles)
        ctx.service_roles = list(service)
        return view.SecretVisibility(ctx, *view.AGAIN).may_see(project, "u")

    def test_members_and_services_may_see_secrets(self):
        self.assertTrue(self.may_see("member", "reader"))
        self.assertTrue(self.may_see("admin", project="other"))
        self.assertTrue(self.may_see("service"))
        self.assertTrue(self.may_see("reader", service=["service"]))

    def test_readers_may_not_see_secrets(self):
        self.assertFalse(self.may_see("reader"))
        self.assertFalse(self.may_see("guest", service=["guest"]))
        self.assertFalse(self.may_see("member", project="other"))

    def test_policy_is_asked_once_per_project(self):
        visibility = view.SecretVisibility(api_context.make_context(), "one:rule")
        with mock.patch.object(policy_rules, "allows", return_value=True) as allows:
            for _ in range(10):
                visibility.may_see("p", "u")
            visibility.may_see("q", "u")
        self.assertEqual(2, allows.call_count)

    def test_all_rules_have_to_allow(self):
        for allowed in ((True, False), (False, True)):
            visibility = view.SecretVisibility(api_context.make_context(), *view.AGAIN)
            with mock.patch.object(policy_rules, "allows", side_effect=allowed):
                self.assertFalse(visibility.may_see("p", "u"))


KEY = "1" * 64


class SharedConnectionTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.own, self.same, self.others = (
            db_rows.add_attachment(
                db_rows.add_volume(project_id=project)["id"],
                "attached",
                project_id=project,
                connection_key=KEY,
            )
            for project in (db_rows.PROJECT, db_rows.PROJECT, api_context.OTHER_PROJECT)
        )
        self.all = [self.same["id"], self.others["id"]]

    def beside(self, ctx):
        return view.sharing_ids(ctx, [self.own])[self.own["id"]]

    def test_member_sees_sharing_attachments_of_own_project(self):
        self.assertEqual([self.same["id"]], self.beside(api_context.make_context()))

    def test_admin_sees_sharing_attachments_of_all_projects(self):
        self.assertEqual(self.all, self.beside(api_context.make_context(*api_context.ADMIN)))

    def test_service_token_sees_sharing_attachments_of_all_projects(self):
        ctx = api_context.make_context()
        ctx.service_roles = ["service"]
        self.assertEqual(self.all, self.beside(ctx))

    def test_users_exclude_deleted_attachment(self):
        for ctx, expected in (
            (api_context.make_context(), [self.same["id"]]),
            (api_context.make_context(*api_context.ADMIN), self.all),
        ):
            connection = view.SharedConnection(ctx, Attachment.get(ctx, self.own["id"]))
            self.assertEqual(expected, [row["id"] for row in connection.users()])
        db_rows.remove_attachment(self.own["id"])
        self.assertEqual(self.all, [row["id"] for row in connection.users()])
        db_rows.change_attachment(self.same["id"], state="disconnecting")
        self.assertEqual([self.others["id"]], [row["id"] for row in connection.users()])
