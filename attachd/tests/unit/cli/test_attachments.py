# SPDX-License-Identifier: Apache-2.0
"""The commands on attachments: requests and output."""

import csv
import datetime
import io
import json
import os
from pathlib import Path
import tempfile
from unittest import mock

import yaml

from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal
from attachd.cli import blockstorage, options
from attachd.cli.blockstorage import ATTACHD_1_0, ATTACHD_1_1
from attachd.tests.unit.cli import programs
from attachd.tests.unit.cli.programs import INFO, ONE, Case


class CreateTest(Case):
    def test_create_with_all_options_sends_connector_and_shows_connection(self):
        out = self.run_it(
            *("attachment-create", "data", "2f1a7b64-9f0b-4a52-a3bb-4d1c2e9b1a10"),
            *("--connect", "True", "--initiator", "iqn.2026-01.example:1", "--ip", "192.0.2.1"),
            *("--host", "node1", "--platform", "ppc64le", "--ostype", "linux"),
            *("--multipath", "True", "--mountpoint", "/dev/vdb", "--mode", "ro"),
            *("-f", "json"),
        )
        self.assertEqual(
            {
                "volume_uuid": "id of data",
                "instance_uuid": "2f1a7b64-9f0b-4a52-a3bb-4d1c2e9b1a10",
                "mode": "ro",
                "connector": {
                    "initiator": "iqn.2026-01.example:1",
                    "ip": "192.0.2.1",
                    "host": "node1",
                    "platform": "ppc64le",
                    "os_type": "linux",
                    "multipath": True,
                    "mountpoint": "/dev/vdb",
                },
            },
            self.sent(),
        )
        expected = {**INFO, "attachment_id": "a1", "volume_id": "id of data"}
        self.assertEqual(expected, json.loads(out))

    def test_create_with_connect_sends_default_connector_values(self):
        self.run_it("attachment-create", "data", "--connect", "--host", "node1")
        self.assertEqual(
            {"platform": "x86_64", "os_type": "linux2", "multipath": False, "host": "node1"},
            self.sent()["connector"],
        )

    def test_create_without_connect_reserves(self):
        for words in ((), ("--connect", "False")):
            self.run_it("attachment-create", "data", *words)
            self.assertEqual({"volume_uuid": "id of data"}, self.sent())

    def test_create_with_host_without_connect_is_refused(self):
        self.run_it("attachment-create", "data", "--host", "node1", code=2)
        self.assertIn("argument --host: only of use with --connect True", self.said)
        self.assertEqual([], self.cloud.asked)

    def test_create_with_host_and_connect_false_sends_no_connector(self):
        self.run_it("attachment-create", "data", "--host", "node1", "--connect", "False")
        self.assertNotIn("connector", self.sent())

    def test_create_with_on_sends_host_of_agent(self):
        self.run_it("attachment-create", "data", "server", "--on", "node1", "--mode", "ro")
        self.assertEqual(
            {
                "volume_uuid": "id of data",
                "instance_uuid": "server",
                "host": "node1",
                "mode": "ro",
            },
            self.sent(),
        )

    def test_create_with_on_shows_device(self):
        self.cloud.one = {**ONE, "agent": "node1", "device": "/dev/sdb", "status": "attached"}
        shown = json.loads(self.run_it("attachment-create", "data", "--on", "node1", "-f", "json"))
        self.assertEqual(
            ("node1", "/dev/sdb", "attached"), (shown["host"], shown["device"], shown["status"])
        )
        self.assertNotIn("auth_password", shown)

    def test_create_with_on_and_connector_options_is_refused(self):
        for words in (["--connect", "True"], ["--initiator", "i"], ["--multipath"]):
            self.run_it("attachment-create", "data", *words, "--on", "node1", code=2)
            self.assertIn(f"argument --on: not allowed with {words[0]}", self.said)
        self.assertEqual([], self.cloud.asked)

    def test_create_with_dry_run_shows_what_is_possible(self):
        words = ("--connect", "--host", "node1", "--dry-run", "-f", "json")
        out = self.run_it("attachment-create", "data", *words)
        self.assertEqual(programs.DRY_RUN, json.loads(out))
        self.assertEqual("node1", self.sent()["connector"]["host"])
        request = self.cloud.asked[0][2]
        self.assertEqual(
            ({"dry_run": "true"}, ATTACHD_1_0), (request["params"], request["headers"])
        )

    def test_create_with_move_from_sends_it_under_its_version(self):
        self.run_it("attachment-create", "data", "--on", "node1", "--move-from", "a1")
        expected = {"volume_uuid": "id of data", "host": "node1", "move_from": "a1"}
        self.assertEqual(expected, self.sent())
        self.assertLessEqual(ATTACHD_1_1.items(), self.cloud.asked[0][2]["headers"].items())

    def test_finish_move_sends_the_action_and_shows_the_attachment(self):
        self.assertIn("a1", self.run_it("attachment-finish-move", "a1", "-f", "json"))
        method, path, request = self.cloud.asked[0]
        self.assertEqual(("POST", "/attachments/a1/action"), (method, path))
        self.assertEqual(({"finish_move": {}}, ATTACHD_1_1), (request["json"], request["headers"]))

    def test_create_with_expires_in_sends_seconds(self):
        self.run_it("attachment-create", "data", "--expires-in", "2h")
        self.assertEqual({"volume_uuid": "id of data", "expires_in": 7200}, self.sent())

    def test_create_with_expires_in_and_host_is_refused(self):
        for words in (["--connect", "True"], ["--on", "node1"]):
            self.run_it("attachment-create", "data", *words, "--expires-in", "2h", code=2)
            self.assertIn("argument --expires-in: only a reservation expires", self.said)
        self.assertEqual([], self.cloud.asked)


class UpdateTest(Case):
    def test_update_sends_connector_and_shows_connection(self):
        out = self.run_it(
            *("attachment-update", "a1", "--host", "node1", "--multipath", "False"),
            *("--mode", "ro", "-f", "value", "-c", "auth_password"),
        )
        self.assertEqual("kystSioDKHSV2j9y\n", out)
        self.assertEqual(
            {
                "platform": "x86_64",
                "os_type": "linux2",
                "multipath": False,
                "host": "node1",
                "mode": "ro",
            },
            self.sent()["connector"],
        )


class FormatsTest(Case):
    def test_show_for_people_has_section_of_connection(self):
        self.cloud.one = {
            **ONE,
            "status": "attached",
            "volume_name": "data",
            "attached_host": "node1",
            "error": "no path",
            "condition": {"state": "failed", "message": "no path", "changed_at": None},
        }
        text = self.run_it("attachment-show", "a1")
        lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
        fields = {parts[0]: parts[1] for parts in lines if len(parts) > 1}
        self.assertEqual("data (id of data)", fields["Volume"])
        self.assertEqual("failed: no path", fields["Condition"])
        self.assertRegex(fields["Status"], r"attached since 2026-01-01 00:00:00 UTC \(\d+d ago\)")
        self.assertIn("\nConnection\n", text)
        self.assertEqual("kystSioDKHSV2j9y", fields["auth_password"])
        self.assertNotIn("{", text)
        self.assertNotIn("None", text)
        coloured = self.run_in_terminal(80, "attachment-show", "a1")
        self.assertIn("\x1b[31mno path\x1b[39m", coloured)

    def test_show_as_table_is_sorted_and_flat(self):
        lines = self.run_it("attachment-show", "a1", "-f", "table").splitlines()
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
        found = dict(cells[1:])
        self.assertEqual("kystSioDKHSV2j9y", found["auth_password"])
        self.assertEqual("[0, 1]", found["target_luns"])
        self.assertEqual(sorted(found), list(found))

    def test_show_in_formats_for_programs_keeps_values(self):
        expected = {name: value for name, value in ONE.items() if name != "connection_info"}
        expected |= INFO
        expected["attachment_id"] = expected.pop("id")
        self.assertEqual(expected, json.loads(self.run_it("attachment-show", "a1", "-f", "json")))
        self.assertEqual(
            expected, yaml.safe_load(self.run_it("attachment-show", "a1", "-f", "yaml"))
        )
        shell = self.run_it("attachment-show", "a1", "-f", "shell", "--prefix", "x_")
        self.assertIn('x_attachment_id="a1"', shell.splitlines())
        value = self.run_it("attachment-show", "a1", "-f", "value", "-c", "status")
        self.assertEqual("attaching\n", value)

    def test_list_in_each_format_shows_columns(self):
        row = {
            "ID": "a1",
            "Volume ID": "id of data",
            "Instance ID": None,
            "Status": "attaching",
            "Volume": "id of data",
            "Host": None,
            "Device": None,
            "Condition": None,
            "Age": mock.ANY,
        }
        self.assertEqual([row], json.loads(self.run_it("attachment-list", "-f", "json")))
        self.assertEqual([row], yaml.safe_load(self.run_it("attachment-list", "-f", "yaml")))
        lines = list(csv.DictReader(io.StringIO(self.run_it("attachment-list", "-f", "csv"))))
        self.assertEqual(["a1"], [line["ID"] for line in lines])
        self.assertEqual(
            "a1 attaching\n",
            self.run_it("attachment-list", "-f", "value", "-c", "ID", "-c", "Status"),
        )
        self.assertEqual("/attachments", self.cloud.asked[-1][1])
        self.assertIn("| a1 | id of data |", self.run_it("attachment-list"))


_UUID = "1c6ed1a3-81c1-48f4-a9c8-26f73a455e50"


class TableTest(Case):
    """The columns of the list in terminals."""

    def setUp(self):
        super().setUp()
        self.cloud.listed = [
            {
                **ONE,
                "id": _UUID,
                "volume_name": "data",
                "status": "error_attaching",
                "attached_host": "node1",
                "device": "/dev/sdb",
                "condition": None,
            }
        ]

    def headings(self, text):
        return [name.strip() for name in text.splitlines()[1].split("|")[1:-1]]

    def test_table_has_columns_that_fit(self):
        for width, expected in (
            (80, ["ID", "Volume", "Host", "Status"]),
            (90, ["ID", "Volume", "Host", "Status", "Age"]),
            (100, ["ID", "Volume", "Host", "Device", "Status", "Age"]),
            (130, ["ID", "Volume", "Host", "Device", "Status", "Condition", "Age", "Instance ID"]),
        ):
            shown = self.run_in_terminal(width, "attachment-list", NO_COLOR="1")
            self.assertEqual(expected, self.headings(shown), width)
            self.assertLessEqual(max(map(len, shown.splitlines())), width)
            self.assertIn(_UUID, shown)
            self.assertNotIn("None", shown)

    def test_table_in_a_pipe_has_120_characters(self):
        self.cloud.listed[0]["volume_name"] = "d" * 90
        shown = self.run_it("attachment-list")
        self.assertEqual(120, max(map(len, shown.splitlines())))
        wide = self.run_it("attachment-list", "--max-width", "0")
        self.assertIn("d" * 90, wide)

    def test_long_table_names_columns_without_space(self):
        shown = self.run_in_terminal(110, "attachment-list", "--long", NO_COLOR="1")
        self.assertIn("Volume ID", self.headings(shown))
        self.assertIn("Left out for want of width: ", self.said)
        self.assertIn("Project ID", self.said)
        wide = self.run_in_terminal(300, "attachment-list", "--long")
        self.assertIn("Project ID", self.headings(wide))
        self.assertEqual("", self.said)

    def test_wrong_status_is_red_in_terminals_that_want_colours(self):
        red = "\x1b[31merror_attaching\x1b[39m"
        self.assertIn(red, self.run_in_terminal(120, "attachment-list"))
        for settings in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            shown = self.run_in_terminal(120, "attachment-list", **settings)
            self.assertNotIn("\x1b", shown, settings)
        self.assertNotIn("\x1b", self.run_it("attachment-list"))
        self.assertNotIn("\x1b", self.run_in_terminal(120, "attachment-list", "-f", "json"))
        self.cloud.listed[0]["status"] = "attached"
        self.assertNotIn("\x1b", self.run_in_terminal(120, "attachment-list"))


class ReserveTest(Case):
    def test_reserve_sends_volume_mode_and_expiry(self):
        self.run_it("attachment-reserve", "data", "--mode", "ro", "--expires-in", "2h")
        expected = {"volume_uuid": "id of data", "mode": "ro", "expires_in": 7200}
        self.assertEqual(expected, self.sent())
        self.run_it("attachment-reserve", "data", "--on", "node1", code=2)


class ListTest(Case):
    def test_list_with_unknown_status_is_refused(self):
        self.run_it("attachment-list", "--status", "in-use", code=2)
        self.assertIn("invalid choice: 'in-use' (choose from 'attached', ", self.said)
        self.assertEqual([], self.cloud.asked)

    def test_list_filters_are_sent(self):
        self.run_it(
            *("attachment-list", "--volume-id", "v", "--instance-id", "i", "--status", "attached"),
            *("--all-projects", "--limit", "2", "--marker", "m"),
        )
        self.assertEqual(
            {
                "volume_id": "v",
                "instance_id": "i",
                "attach_status": "attached",
                "all_tenants": "1",
                "limit": "2",
                "marker": "m",
            },
            self.cloud.asked[0][2]["params"],
        )

    def test_list_filters_of_attachd_send_own_version(self):
        before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        self.run_it(
            *("attachment-list", "--host", "n1", "--agent", "n2", "--older-than", "2h"),
            *("--unchanged-for", "90s", "--limit", "2"),
        )
        asked = self.cloud.asked[0][2]
        self.assertEqual(blockstorage.ATTACHD_1_1, asked["headers"])
        params = asked["params"]
        self.assertEqual(("n1", "n2"), (params["attached_host"], params["agent"]))
        after = datetime.datetime.now(datetime.UTC)
        for name, seconds_ago in (("created_at", 7200), ("updated_at", 90)):
            verb, _, moment = params[name].partition(":")
            asked_at = datetime.datetime.fromisoformat(moment) + datetime.timedelta(
                seconds=seconds_ago
            )
            self.assertEqual("lte", verb)
            self.assertTrue(before <= asked_at <= after, asked_at)

    def test_list_of_deleted_shows_host_and_times(self):
        self.cloud.listed = [
            {"id": "a", "status": "deleted", "attached_host": "n1", "detached_at": "2026-01-31"}
        ]
        before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        out = self.run_it(
            *("attachment-list", "--deleted", "--deleted-since", "2h", "--long", "-f", "json"),
            *("--limit", "2"),
        )
        asked = self.cloud.asked[0][2]
        self.assertEqual(blockstorage.ATTACHD_1_1, asked["headers"])
        self.assertEqual("true", asked["params"]["deleted"])
        verb, _, moment = asked["params"]["detached_at"].partition(":")
        self.assertEqual("gte", verb)
        self.assertLessEqual(
            before - datetime.timedelta(hours=2), datetime.datetime.fromisoformat(moment)
        )
        (line,) = json.loads(out)
        self.assertEqual(("n1", "2026-01-31"), (line["Host"], line["Detached At"]))

    def test_list_with_deleted_since_needs_deleted(self):
        self.run_it("attachment-list", "--deleted-since", "2h", code=2)
        self.assertIn("argument --deleted-since: only of use with --deleted", self.said)

    def test_list_with_invalid_duration_is_refused(self):
        for duration in ("2", "h", "two", "-1h", "2w", "1e3s", "999999d", "\u0662h"):
            self.run_it("attachment-list", f"--older-than={duration}", code=2)
            self.assertIn("argument --older-than", self.said)

    def test_list_accepts_underscored_options(self):
        self.run_it("attachment-list", "--volume_id", "v", "--all_projects")
        asked = self.cloud.asked[0][2]["params"]
        self.assertEqual({"volume_id": "v", "all_tenants": "1"}, asked)

    def test_abbreviated_option_is_not_cloud_option(self):
        # --insecure is one of the cloud's.
        self.run_it("attachment-create", "data", "--connect", "--host", "node1", "--ini", "iqn")
        self.assertEqual("iqn", self.sent()["connector"]["initiator"])

    def test_list_long_shows_no_secret(self):
        out = self.run_it("attachment-list", "--long", "-f", "json")
        self.assertEqual("rw", json.loads(out)[0]["Mode"])
        self.assertNotIn("kystSioDKHSV2j9y", out)

    def test_list_long_shows_state_of_condition_if_there_is_one(self):
        observed = {"condition": {"state": "degraded", "message": "Paths have failed."}}
        listed = [{"id": "a", **item} for item in (observed, {"condition": None}, {})]
        self.cloud.listed = listed
        out = json.loads(self.run_it("attachment-list", "--long", "-f", "json"))
        self.assertEqual(["degraded", None, None], [line["Condition"] for line in out])
        version = self.cloud.asked[0][2]["headers"]["OpenStack-API-Version"]
        self.assertEqual("volume 3.44, attachd 1.1", version)

    def test_list_with_invalid_limit_is_refused(self):
        for limit in ("0", "-1", "many"):
            self.run_it("attachment-list", f"--limit={limit}", code=2)
            self.assertIn("argument --limit", self.said)


class SeveralTest(Case):
    def test_delete_sends_request_for_each_id(self):
        self.assertEqual("", self.run_it("attachment-delete", "a1", "a2"))
        asked = [(method, url) for method, url, _request in self.cloud.asked]
        self.assertEqual([("DELETE", "/attachments/a1"), ("DELETE", "/attachments/a2")], asked)
        self.assertNotIn("params", self.cloud.asked[0][2])

    def test_delete_with_force_and_reason_sends_parameters_of_attachd(self):
        for words, params in (
            (["--force"], {"force": "true"}),
            (["--override-reason", "node1 is off"], {"override_reason": "node1 is off"}),
            (["--force", "--override-reason", "x"], {"force": "true", "override_reason": "x"}),
        ):
            self.cloud.asked.clear()
            self.run_it("attachment-delete", "a1", *words)
            ((method, _url, request),) = self.cloud.asked
            self.assertEqual("DELETE", method)
            self.assertEqual(
                (params, blockstorage.ATTACHD_1_0), (request["params"], request["headers"])
            )

    def test_delete_of_attachment_in_journal_needs_force(self):
        state_path = Path(self.enterContext(tempfile.TemporaryDirectory()))
        device = Device("/dev/loop7", {})
        entry = Entry("v1", attachment_id="a1", device=device, mountpoint="/mnt/data")
        Journal(state_path).write(entry)
        variables = {options.STATE_PATH_VARIABLE: f"{state_path}"}
        self.enterContext(mock.patch.dict(os.environ, variables))
        self.run_it("attachment-delete", "a1", "a2", code=1)
        (asked,) = self.cloud.asked
        self.assertEqual(("DELETE", "/attachments/a2"), asked[:2])
        self.assertRegex(
            self.said,
            r"\Aa1: .*/dev/loop7, mounted at /mnt/data.*local-detach --attachment-id a1 v1.*"
            r"--force\.\n\Z",
        )
        self.run_it("attachment-delete", "a1", "--force")
        self.assertEqual(("DELETE", "/attachments/a1"), self.cloud.asked[-1][:2])

    def test_delete_without_access_to_journal_sends_request(self):
        # As pathlib of Python 3.11 below a directory of another user with mode 0700.
        denied = PermissionError(13, "Permission denied", "/var/lib/attachd/host")
        with mock.patch.object(Journal, "list_entries", autospec=True, side_effect=denied):
            self.assertEqual("", self.run_it("attachment-delete", "a1"))
        self.assertEqual([("DELETE", "/attachments/a1")], [one[:2] for one in self.cloud.asked])

    def test_complete_continues_after_failure(self):
        self.cloud.missing = {"/attachments/a1/action"}
        self.run_it("attachment-complete", "a1", "a2", code=1)
        self.assertEqual(2, len(self.cloud.asked))
        self.assertRegex(self.said, r"\Aa1: .*it is gone\n\Z")
