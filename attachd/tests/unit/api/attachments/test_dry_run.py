# SPDX-License-Identifier: Apache-2.0
"""Tests of dry runs, which functional/test_dry_run.py compares with real requests."""

from unittest import mock

from attachd import exception
from attachd.api.attachments import dry_run
from attachd.objects import Volume
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, db_rows

HOST = "here@fake"


class CheckTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.volume = Volume.get(self.ctx, db_rows.add_volume()["id"])
        self.asked = self.enterContext(mock.patch.object(manager_api, "check_attach"))
        self.asked.return_value = "ro"

    def check(self, **requested):
        return dry_run.check(self.ctx, self.volume, requested)["dry_run"]

    def test_reservation_does_not_ask_the_manager(self):
        expected = {"possible": True, "attach_mode": "rw", "reasons": [], "holders": []}
        self.assertEqual(expected, self.check())
        self.asked.assert_not_called()

    def test_mode_is_that_of_the_manager(self):
        db_rows.report_service(HOST)
        self.assertEqual("ro", self.check(connector=db_rows.CONNECTOR)["attach_mode"])
        (_ctx, _volume, connector, values), _options = self.asked.call_args
        self.assertEqual(db_rows.CONNECTOR, connector)
        self.assertEqual(self.volume.project_id, values["project_id"])

    def test_manager_decides_nothing_about_refused_reservation(self):
        db_rows.report_service(HOST)
        db_rows.add_attachment(self.volume.id, "attached")
        self.asked.side_effect = exception.Unavailable(reason="No /run/daemon.")
        answer = self.check(connector=db_rows.CONNECTOR)
        self.assertIsNone(self.asked.call_args.args[3])
        reasons = [(item["code"], item["message"]) for item in answer["reasons"]]
        self.assertEqual([400, 503], [code for code, _message in reasons])
        self.assertNotIn("/run/daemon", reasons[1][1])

    def test_caller_without_permission_learns_nothing_of_hosts(self):
        with mock.patch.object(dry_run, "presence") as presence:
            answer = self.check(host="node-1")
        self.assertEqual([403], [item["code"] for item in answer["reasons"]])
        self.assertEqual([], presence.mock_calls)
