# SPDX-License-Identifier: Apache-2.0
"""A connection, as the wire has it."""

import unittest

from attachd.api.legacy import view

STORED = {"driver_volume_type": "iscsi", "data": {"target_lun": 1, "encrypted": True}}


class ConnectionTest(unittest.TestCase):
    def test_connection_adds_defaults_to_driver_data(self):
        shown = view.connection({"connection_info": STORED, "mode": "rw"}, {"host": "h"})
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
        shown = view.connection(answer, {"enforce_multipath": True})["connection_info"]
        self.assertIs(True, shown["enforce_multipath"])
        self.assertIs(True, shown["data"]["enforce_multipath"])
