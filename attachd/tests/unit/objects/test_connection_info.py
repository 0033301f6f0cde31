# SPDX-License-Identifier: Apache-2.0
"""What hosts are told of a connection is the same, whoever asks."""

import unittest

from attachd.api.attachments import view
from attachd.objects import connection_info

STORED = {"driver_volume_type": "iscsi", "data": {"target_portal": "p", "auth_password": "s"}}
ROW = {
    "id": "a",
    "kind": "attachment",
    "state": "connected",
    "instance_uuid": None,
    "volume_id": "v",
    "attached_at": None,
    "mode": "ro",
    "connection_info": STORED,
    "connector": {"host": "h", "enforce_multipath": True},
}


class FlatTest(unittest.TestCase):
    def test_it_is_what_the_api_shows(self):
        self.assertEqual(view.detail(ROW)["connection_info"], connection_info.flat(ROW))

    def test_it_has_the_protocol_and_what_that_needs_and_what_a_driver_left_unsaid(self):
        expected = {
            "driver_volume_type": "iscsi",
            "target_portal": "p",
            "auth_password": "s",
            "access_mode": "ro",
            "attachment_id": "a",
            "enforce_multipath": True,
            "qos_specs": None,
            "encrypted": False,
            "cacheable": False,
        }
        self.assertEqual(expected, connection_info.flat(ROW))

    def test_whoever_did_not_say_how_may_write(self):
        flat = connection_info.flat({**ROW, "mode": None, "connector": None})
        self.assertEqual(("rw", False), (flat["access_mode"], flat["enforce_multipath"]))

    def test_what_the_driver_says_counts(self):
        data = connection_info.data({"data": {"access_mode": "ro", "cacheable": True}}, "rw")
        self.assertEqual(("ro", True), (data["access_mode"], data["cacheable"]))


class ServiceUuidTest(unittest.TestCase):
    def test_a_backend_keeps_its_name_and_others_have_others(self):
        # Hosts hold locks of that name: another release must not change it.
        expected = "50567e3a-daeb-5d06-a0f3-d0e90d78d9a2"
        self.assertEqual(expected, connection_info.service_uuid("here@fake"))
        self.assertNotEqual(expected, connection_info.service_uuid("there@fake"))
