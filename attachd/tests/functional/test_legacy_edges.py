# SPDX-License-Identifier: Apache-2.0
"""Tests of legacy attach actions in unusual orders, with a manager whose backend is fake."""

from unittest import mock

from attachd.api import detach_guard, scheduler
from attachd.drivers import base
from attachd.manager import detach
from attachd.manager.audit import runner
from attachd.tests.fixtures import db_rows, fake_nova, wsgi_api
from attachd.tests.functional.api_case import ApiCase

SERVER = "11111111-2222-3333-4444-abcdefabcdef"
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}


class Case(ApiCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]

    def let_in(self, **more):
        sent = {"connector": {**CONNECTOR, **more}}
        result = self.act(self.volume, "os-initialize_connection", sent, status=200).body
        return result["connection_info"]["data"]

    def attached(self, **more):
        self.act(
            self.volume, "os-attach", {"instance_uuid": SERVER, "mountpoint": "/dev/vdb", **more}
        )
        return db_rows.list_attachments(self.volume)[0]["id"]

    def status(self):
        now = db_rows.get_volume(self.volume)
        return now["status"], now["attach_status"]


class ReadOnlyTest(Case):
    def test_legacy_connect_after_read_only_attach_is_read_only(self):
        self.attached(mode="ro")
        self.assertEqual("ro", self.let_in()["access_mode"])


class NamesTest(Case):
    def test_legacy_detach_accepts_attachment_id_in_any_case(self):
        identity = self.attached()
        self.act(self.volume, "os-detach", {"attachment_id": identity.upper()})
        self.assertEqual(("available", "detached"), self.status())

    def test_legacy_attach_accepts_server_id_in_any_spelling(self):
        wanted = {"volume_uuid": self.volume, "instance_uuid": SERVER.upper()}
        answer = self.api.request("POST", "/attachments", {"attachment": wanted})
        self.assertEqual(SERVER, answer.body["attachment"]["instance"])
        attachment_id = answer.body["attachment"]["id"]
        for written in (SERVER.replace("-", ""), SERVER.upper()):
            self.attached(instance_uuid=written)
        self.assertEqual(
            [attachment_id], [row["id"] for row in db_rows.list_attachments(self.volume)]
        )
        found = self.api.request("GET", f"/attachments?instance_id={SERVER.upper()}")
        self.assertEqual(
            [attachment_id], [attachment["id"] for attachment in found.body["attachments"]]
        )
        self.act(
            self.volume,
            "os-force_detach",
            {"attachment_id": attachment_id.upper()},
            token=wsgi_api.ADMIN,
        )
        self.assertEqual(("available", "detached"), self.status())

    def test_volume_id_is_accepted_in_any_spelling(self):
        for written in (self.volume.upper(), self.volume.replace("-", "")):
            wanted = {"volume_uuid": written, "instance_uuid": SERVER}
            answer = self.api.request("POST", "/attachments", {"attachment": wanted})
            self.assertEqual(self.volume, answer.body["attachment"]["volume_id"], answer.raw)


class ResetTest(Case):
    def test_refused_legacy_attach_takes_no_reservation(self):
        claims = {"status": "attaching", "attach_status": "attached"}
        self.reset(400, **claims)
        self.assertEqual(("available", "detached"), self.status())

    def reset(self, code, query="", **claims):
        """Send the action and return its error, or None."""
        path, version = f"/volumes/{self.volume}/action{query}", f"{wsgi_api.LATEST}, attachd 1.0"
        answer = self.expect(
            *(code, "POST", path, {"os-reset_status": claims}),
            token=wsgi_api.ADMIN,
            version=version if query else wsgi_api.LATEST,
        )
        return answer.fault if code >= 400 else None

    def test_reset_of_volume_that_backend_exports_is_refused(self):
        volume, export = base.VolumeRef(self.volume, 1), base.Export("left-over", CONNECTOR)
        self.driver.grant(volume, export)
        self.reset(202, status="error")
        for claims in ({"status": "available"}, {"attach_status": "detached"}):
            says = self.reset(409, **claims)
            self.assertRegex(says, "left-over has access.* attachd-manage audit --repair")
            self.assertEqual(("error", "detached"), self.status())
        self.reset(202, "?force=true", status="available")
        self.assertEqual(("available", "detached"), self.status())
        self.reset(202, status="error")
        self.driver.revoke(volume, export, ())
        self.reset(202, status="available")
        self.assertEqual(("available", "detached"), self.status())

    def test_reset_of_volume_whose_export_is_lost_is_refused(self):
        identity = self.create_attachment(self.volume, connector=CONNECTOR)
        self.expect(204, "POST", f"/attachments/{identity}/action", {"os-complete": None})
        self.reset(202, status="error")
        self.driver.restart()
        self.assertRegex(self.reset(409, status="in-use"), f"{identity}.* has no access")
        runner.repair(self.api.backend)
        self.reset(202, status="in-use")
        self.assertEqual(("in-use", "attached"), self.status())

    def test_reset_with_silent_backend_is_refused_unless_forced(self):
        self.reset(202, status="error")
        with self.driver.failing("list_exports"):
            self.assertRegex(self.reset(503, status="available"), "The backend failed.*force=true")
        with mock.patch.object(scheduler.services, "page", return_value=[]):
            self.assertRegex(self.reset(503, status="available"), "No manager of .* reports")
        self.assertEqual(("error", "detached"), self.status())
        with self.driver.failing("list_exports"):
            self.reset(202, status="maintenance")  # says nothing about hosts
            self.reset(202, "?force=true", status="available")
        self.assertEqual(("available", "detached"), self.status())


class GuardTest(Case):
    """A Compute whose server uses any attachment."""

    def setUp(self):
        super().setUp()
        fake_nova.use_all_attachments(self)

    def connect(self, identity):
        body = {"attachment": {"connector": CONNECTOR}}
        self.expect(200, "PUT", f"/attachments/{identity}", body)

    def test_connect_during_legacy_detach_of_reservation_keeps_the_volume(self):
        identity = self.create_attachment(self.volume, instance_uuid=SERVER)
        checked = detach_guard.check_volume

        def check(*given):
            said = checked(*given)
            self.connect(identity)
            return said

        with mock.patch.object(detach_guard, "check_volume", check):
            for action in ("os-detach", "os-force_detach"):
                self.act(self.volume, action, {}, status=409, token=wsgi_api.ADMIN)
        self.assertEqual({identity}, self.driver.granted())

    def test_reconnect_during_legacy_detach_of_failure_keeps_the_volume(self):
        identity = self.create_attachment(self.volume, instance_uuid=SERVER)
        body = {"attachment": {"connector": CONNECTOR}}
        with self.driver.failing("grant", final=True):
            failed = self.api.request("PUT", f"/attachments/{identity}", body)
        self.assertEqual(500, failed.status)
        self.assertEqual("connect_failed", db_rows.get_attachment(identity)["state"])
        checked = detach_guard.check_volume

        def check(*given):
            said = checked(*given)
            self.connect(identity)
            self.api.request("POST", f"/attachments/{identity}/action", {"os-complete": None})
            return said

        with mock.patch.object(detach_guard, "check_volume", check):
            answer = self.act(self.volume, "os-detach", {"attachment_id": identity}, status=409)
        self.assertIn(f"Attachment {identity} has become attached since", answer.fault)
        self.assertEqual(("in-use", "attached"), self.status())
        self.assertEqual({identity}, self.driver.granted())

    def test_force_delete_of_volume_in_use_by_a_server_is_refused(self):
        identity = self.create_attachment(self.volume, instance_uuid=SERVER, connector=CONNECTOR)
        self.act(self.volume, "os-force_delete", status=409, token=wsgi_api.ADMIN)
        forced = f"/volumes/{self.volume}?force=true"
        self.assertEqual(409, self.api.request("DELETE", forced, token=wsgi_api.ADMIN).status)
        self.assertEqual({identity}, self.driver.granted())

    def test_legacy_attach_during_terminate_connection_keeps_the_connection(self):
        self.act(self.volume, "os-reserve")
        self.let_in()
        (_hold, connection) = db_rows.list_attachments(self.volume)
        started = detach.end_connection

        def late(*given, **named):
            if not db_rows.get_attachment(connection["id"])["parent_id"]:
                self.attached()
            return started(*given, **named)

        with mock.patch.object(detach, "end_connection", late):
            self.act(self.volume, "os-unreserve")
        self.assertEqual({connection["id"]}, self.driver.granted())
