# SPDX-License-Identifier: Apache-2.0
"""Tests of ``POST /attachments?dry_run=true``: it tells what the same request without it does."""

import datetime
from unittest import mock

from attachd import exception
from attachd.tests.fixtures import conf_fixture, db_rows, fake_agent, wsgi_api
from attachd.tests.functional.api_case import ApiCase

ATTACHD_1_0 = f"{wsgi_api.LATEST}, attachd 1.0"
SERVER = "11111111-2222-4333-8444-555555555555"
OTHER_SERVER = "22222222-2222-4333-8444-555555555555"
CONNECTOR = {"host": "node-1", "initiator": "iqn.2026-01.org.example:node-1"}
SHARED = "<is> True"
LONG_AGO = datetime.datetime(2020, 1, 1)  # noqa: DTZ001  as the database has times


class DryRunTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]

    def post(self, query, fields, **options):
        body = {"attachment": {"volume_uuid": self.volume, **fields}}
        options = {"version": ATTACHD_1_0, **options}
        return self.api.request("POST", f"/attachments{query}", body, **options)

    def dry_run(self, fields=None, **options):
        """Return the answer, after the check that nothing was stored or granted."""
        before = self.state()
        answer = self.post("?dry_run=true", fields or {}, **options)
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual(before, self.state())
        return answer.body["dry_run"]

    def state(self):
        volume = db_rows.get_volume(self.volume)
        return volume, db_rows.list_attachments(), self.driver.granted()

    def assert_possible(self, fields=None, mode="rw", **options):
        answer = self.dry_run(fields, **options)
        self.assertEqual((True, mode, []), (answer["possible"], answer["attach_mode"],
                                            answer["reasons"]))  # fmt: skip
        real = self.post("", fields or {}, **options)
        self.assertEqual(200, real.status, real.raw)
        return answer

    def assert_refused(self, fields=None, says="", **options):
        """The only reason is the answer to the request itself."""
        answer = self.dry_run(fields, **options)
        self.assertEqual((False, None), (answer["possible"], answer["attach_mode"]))
        (reason,) = answer["reasons"]
        real = self.post("", fields or {}, **options)
        (fault,) = real.body.values()
        self.assertLessEqual(reason.items(), fault.items())
        self.assertRegex(reason["message"], says)
        return answer

    def test_dry_run_of_free_volume_is_possible(self):
        self.assert_possible({"connector": CONNECTOR, "instance_uuid": SERVER})
        self.volume = db_rows.add_volume()["id"]
        answer = self.assert_possible({"mode": "ro"}, "ro")
        self.assertEqual([], answer["holders"])

    def test_dry_run_of_held_volume_names_the_holder(self):
        held = db_rows.add_attachment(self.volume, "attached", instance_uuid=OTHER_SERVER)["id"]
        answer = self.assert_refused(
            {"connector": CONNECTOR, "instance_uuid": SERVER},
            f"held by attachment {held} of server {OTHER_SERVER}",
        )
        expected = {"id": held, "status": "attached", "instance": OTHER_SERVER,
                    "volume_id": self.volume}  # fmt: skip
        self.assertEqual([expected], answer["holders"])
        self.assert_possible({"connector": CONNECTOR, "instance_uuid": OTHER_SERVER})

    def test_dry_run_of_repeated_request_is_possible(self):
        fields = {"connector": CONNECTOR, "instance_uuid": SERVER}
        first = self.assert_possible(fields)
        self.assertEqual([], first["holders"])
        self.assertEqual(1, len(self.assert_possible(fields)["holders"]))
        self.assertEqual(1, len(db_rows.list_attachments()))

    def test_dry_run_of_volume_in_wrong_status_is_refused(self):
        for state, says in (("error", "status is error"), ("extending", "status is extending")):
            self.volume = db_rows.add_volume(state)["id"]
            self.assert_refused({"connector": CONNECTOR}, says)

    def test_dry_run_of_read_only_volume_to_write_is_refused(self):
        self.volume = db_rows.add_volume(admin_metadata={"readonly": "True"})["id"]
        self.assert_refused({"connector": CONNECTOR, "mode": "rw"}, "it is read-only")
        self.assert_possible({"connector": CONNECTOR}, "ro")

    def test_dry_run_at_limits_is_refused(self):
        specs = {"multiattach": SHARED, "max_attachments": "1"}
        type_id = self.create_type("shared", specs)
        self.volume = db_rows.add_volume(multiattach=True, volume_type_id=type_id)["id"]
        db_rows.add_attachment(self.volume, "attached", instance_uuid=OTHER_SERVER, host="node-2")
        self.assert_refused({"connector": CONNECTOR}, "may have 1 .max_attachments of its type")
        self.volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(db_rows.add_volume()["id"], "attached", host="node-1")
        with mock.patch.object(self.api.backend, "check_ready") as check_ready:
            conf_fixture.override(self, "max_attachments_per_host", 1, group="manager")
            self.assert_refused({"connector": CONNECTOR}, "Host node-1 has 1 attachments")
        self.assertEqual(2, check_ready.call_count)  # of the manager, also in a dry run
        conf_fixture.override(self, "quota_attachments", 2, group="quota")
        self.assert_refused({}, "[Aa]ttachment")

    def test_dry_run_lists_reasons_of_volume_and_host(self):
        db_rows.add_attachment(self.volume, "attached", instance_uuid=OTHER_SERVER)
        wrong = exception.InvalidInput(field="connector.initiator", value=None, reason="Wanted.")
        with mock.patch.object(self.driver, "check_connector", side_effect=wrong):
            answer = self.dry_run({"connector": CONNECTOR})
        self.assertEqual([400, 400], [reason["code"] for reason in answer["reasons"]])
        self.assertIn("connector.initiator", answer["reasons"][1]["message"])

    def test_dry_run_with_backend_down_is_refused(self):
        with mock.patch.object(self.api.backend, "error", "no daemon"):
            answer = self.dry_run({"connector": CONNECTOR})
            self.assertIn("no daemon", answer["reasons"][0]["message"])
            self.assertEqual(503, answer["reasons"][0]["code"])
            self.assert_possible({})  # a reservation needs no backend
        self.volume = db_rows.add_volume()["id"]
        db_rows.change_service(self.api.backend.host, seen_at=LONG_AGO)
        with mock.patch.object(self.api.backend.driver, "check_connector") as check_connector:
            answer = self.dry_run({"connector": CONNECTOR})
        self.assertRegex(answer["reasons"][0]["message"], "No manager .* reports")
        check_connector.assert_not_called()

    def test_dry_run_by_host_name_asks_policy_and_agent(self):
        admin = {"token": wsgi_api.ADMIN}
        for fields, says, options in (
            ({"host": "node-2"}, "volume:attachment_create_on_host", {}),
            ({"host": "node-2"}, "node-2", admin),
        ):
            self.assert_refused(fields, says, **options)
        fake_agent.report_agent("node-2")
        answer = self.dry_run({"host": "node-2"}, **admin)
        self.assertEqual((True, "rw"), (answer["possible"], answer["attach_mode"]))
        fake_agent.expire_heartbeat("node-2")
        self.assert_refused({"host": "node-2"}, "node-2", **admin)

    def test_dry_run_leaves_idempotency_key_unused(self):
        key = {"idempotency_key": '"k1"'}
        self.assert_possible({"connector": CONNECTOR}, **key)
        self.assertEqual(200, self.post("", {"connector": CONNECTOR}, **key).status)
        self.assertEqual(1, len(db_rows.list_attachments()))

    def test_dry_run_of_malformed_request_is_an_error(self):
        unknown = "99999999-2222-4333-8444-555555555555"
        for status, fields, options in (
            (404, {"volume_uuid": unknown}, {}),
            (400, {"connector": {"initiator": "x"}}, {}),
            (400, {"expires_in": 60, "connector": CONNECTOR}, {}),
            (400, {}, {"version": wsgi_api.LATEST}),
            (403, {}, {"token": f"rita:{db_rows.PROJECT}:reader"}),
        ):
            with self.subTest(fields, **options):
                answer = self.post("?dry_run=true", fields, **options)
                self.assertEqual(status, answer.status, answer.raw)
        answer = self.post("?dry_run=perhaps", {})
        self.assertEqual(400, answer.status)
        self.assertRegex(answer.fault, "dry_run.*true or false")
        self.assertEqual([], db_rows.list_attachments())
