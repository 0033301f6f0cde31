# SPDX-License-Identifier: Apache-2.0
"""Values stored with a connect; unit/manager/test_attach.py covers the rules about other rows."""

import unittest

from attachd import exception
from attachd.db.attachments import connect_rules as rules

VOLUME = {
    "id": "v",
    "state": "ready",
    "multiattach": False,
    "admin_metadata": {},
    "type_specs": None,
}


def attachment(**values):
    return {
        "id": "a1",
        "state": "reserved",
        "kind": "attachment",
        "instance_uuid": "i",
        "connector": None,
        "host": None,
        "mode": None,
        "asked_mode": None,
        "parent_id": None,
        **values,
    }


def allow(_volume, _attachment, _others):
    return {}


class ConnectValuesTest(unittest.TestCase):
    def noted(self, connector, **mine):
        return rules.connect_values(VOLUME, attachment(**mine), [], connector)

    def test_connect_values_mode_is_rw_unless_ro_requested(self):
        for mode, connector, own in (
            ("rw", {}, {}),
            ("ro", {"mode": "ro"}, {}),
            ("rw", {"mode": "ro"}, {"asked_mode": "rw"}),
            ("rw", {"mode": "null"}, {}),
            ("ro", {}, {"state": "connecting", "mode": "ro"}),
            ("rw", {}, {"state": "connect_failed", "mode": "ro"}),
        ):
            with self.subTest(connector=connector, mine=own):
                noted = self.noted({"host": "h", **connector}, **own)
                self.assertEqual(
                    (mode, "h", "na"), (noted["mode"], noted["host"], noted["mountpoint"])
                )


class CheckTest(unittest.TestCase):
    def check(self, result, **mine):
        rules.check(VOLUME, attachment(**mine), [], result, allow, "")

    def test_check_ignores_mountpoint_of_connector(self):
        local = {"host": "h", "mountpoint": "/dev/vdb"}
        with self.assertRaises(rules.AlreadyConnected):
            self.check({"host": "h"}, state="connected", connector=local)
        with self.assertRaises(exception.ConnectorConflict):
            self.check({"host": "g"}, state="connected", connector=local, host="h")
        self.check({"host": "g"}, state="reserved", connector=local)
