# SPDX-License-Identifier: Apache-2.0
"""Schemas of what agents report; errors do not repeat secrets."""

from typing import Any
import unittest
from unittest import mock

from attachd import exception, host_identity
from attachd.manager.agents import report_schema
from attachd.rpc.agent_manager_api import MAX_ASKED, MAX_OBSERVED
from attachd.tests.fixtures import fake_agent

KEY = "k" * 43
DEVICE = {"attachment_id": "a", "volume_id": "v", "path": None, "size_bytes": None}
OBSERVED = {**DEVICE, "attachment_id": None, "target": "iqn"}
SAID: Any = fake_agent.make_report(
    "compute-1",
    connector={"host": "compute-1", "initiator": "iqn", "multipath": False},
    devices=[DEVICE, {**DEVICE, "path": "/dev/sdb", "size_bytes": 2**40, "mountpoint": "/x"}],
    error="no iscsiadm",
    observed={"devices": [OBSERVED, {**OBSERVED, "attachment_id": "a"}], "asked": ["r" * 32]},
)


class CredentialsTest(unittest.TestCase):
    def test_check_credentials_accepts_host_names(self):
        for host in ("h", "compute-1.example.org", "node_7", "1", "rack1:node2", "x" * 200):
            report_schema.check_credentials(host, KEY)

    def test_check_credentials_rejects_name_of_queue_of_other_host(self):
        digits = "0123456789abcdef" * 2
        for name in ("a.agent", "a_fanout", f"a_fanout_{digits}"):
            with self.assertRaisesRegex(exception.InvalidInput, "host"):
                report_schema.check_credentials(name, KEY)
        for name in ("agent", "a.agent.org", "a_fanout1", f"a_{digits}"):
            report_schema.check_credentials(name, KEY)

    def test_check_credentials_rejects_invalid_host(self):
        for host in ("", "-h", "a b", "a/b", "a#b", "a*", "x\n", "ä", "x" * 201, None, 7, ["h"]):
            with self.assertRaisesRegex(exception.InvalidInput, "host"):
                report_schema.check_credentials(host, KEY)

    def test_check_credentials_rejects_short_key_without_repeating_it(self):
        for key in ("hunter2", "s" * 31, "s" * 256):
            with self.assertRaisesRegex(exception.InvalidInput, "key") as refused:
                report_schema.check_credentials("h", key)
            self.assertNotIn(key, str(refused.exception))
        for key in (None, 7, b"k" * 43):
            with self.assertRaises(exception.InvalidInput):
                report_schema.check_credentials("h", key)


class ReportTest(unittest.TestCase):
    def refused(self, field, said, kind=exception.InvalidInput):
        with self.assertRaises(kind) as refused:
            report_schema.check_report(said)
        self.assertIn(field, str(refused.exception))

    def test_check_report_accepts_agent_report(self):
        report_schema.check_report(SAID)
        report_schema.check_report({**SAID, "connector": None, "devices": [], "error": None})

    def test_check_report_rejects_missing_and_unknown_keys(self):
        for name in SAID:
            self.refused("report", {item: SAID[item] for item in SAID if item != name})
        self.refused("report", {**SAID, "more": 1})
        self.refused("report", [])

    def test_check_report_rejects_wrong_values(self):
        wrong = {
            "connector": ({}, {"host": ""}, {"host": "a\nb"}, "h", 7),
            "devices": (None, {}, [{}], [{**DEVICE, "more": 1}], [{**DEVICE, "path": "a\x00"}]),
            "connector_type": (None, "x" * 33, "a\nb"),
            "version": (None, 1, "x" * 33),
            "error": (7, []),
            "boot_id": (None, "", 7),
            "max_attachments": (0, -1, 4097, 1.5, "28", True),
            "token": (None, {}, {**SAID["token"], "process": None}),
            "observed": (
                [],
                {"devices": []},
                {"devices": [{}], "asked": []},
                {"devices": [{**OBSERVED, "more": 1}], "asked": []},
                {"devices": [{**OBSERVED, "target": "a\nb"}], "asked": []},
                {"devices": [{**OBSERVED, "path": "x" * 256}], "asked": []},
                {"devices": [OBSERVED] * (MAX_OBSERVED + 1), "asked": []},
                {"devices": [], "asked": ["a"] * (MAX_ASKED + 1)},
                {"devices": [], "asked": ["a" * 33]},
            ),
        }
        for name, values in wrong.items():
            for value in values:
                self.refused(f"report.{name}", {**SAID, name: value})

    def test_check_report_limits_number_of_devices(self):
        report_schema.check_report({**SAID, "devices": [DEVICE] * report_schema.MAX_DEVICES})
        self.refused(
            "report.devices", {**SAID, "devices": [DEVICE] * (report_schema.MAX_DEVICES + 1)}
        )

    def test_check_report_limits_size_of_connector(self):
        self.enterContext(mock.patch.object(host_identity, "MAX_CONNECTOR_SIZE", 1024))
        report_schema.check_report({**SAID, "connector": {"host": "h", "more": "x" * 900}})
        large = {**SAID, "connector": {"host": "h", "more": "x" * 1024}}
        self.refused("1024", large, exception.TooLarge)

    def test_check_report_refuses_keys_of_serialized_objects_at_any_depth(self):
        for inner in ({"attachd_object.name": "Volume"}, [[{"attachd_object.x": 1}]]):
            connector = {"host": "h", "inner": inner}
            self.refused("report.connector", {**SAID, "connector": connector})

    def test_check_report_error_does_not_repeat_value(self):
        with self.assertRaises(exception.InvalidInput) as refused:
            report_schema.check_report({**SAID, "connector": {"password": "hunter2"}})
        self.assertNotIn("hunter2", str(refused.exception))


class ValuesTest(unittest.TestCase):
    def test_check_values_accepts_valid_and_rejects_others(self):
        right = {"attachment_id": "a", "generation": 3, "device": "/dev/sdb", "error": "x\ny"}
        report_schema.check_values(**right)
        wrong = {
            "attachment_id": ("", "x" * 256, "a\nb", None, 7, ["a"]),
            "generation": (None, "3", -1, 2**31, 1.5),
            "device": ("", "x" * 256, "/dev/\n", None, 7),
            "error": (None, 7, "x" * (2**16 + 1)),
        }
        for name, values in wrong.items():
            for value in values:
                with self.assertRaisesRegex(exception.InvalidInput, name):
                    report_schema.check_values(**{**right, name: value})
