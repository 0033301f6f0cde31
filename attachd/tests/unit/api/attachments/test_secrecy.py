# SPDX-License-Identifier: Apache-2.0
"""Who sees the secrets of connections, and what is one."""

import unittest
from unittest import mock

from attachd.api import policy
from attachd.api.attachments import secrecy
from attachd.tests import asking, rows

CONNECTION = {
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
    "data": {"volume_passwd": "x", "secret": "x", "target_lun": 1, "credentials": {"user": "u"}},
    "qos_specs": None,
}


class SecretsTest(unittest.TestCase):
    def test_what_is_no_secret_is_left(self):
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
            secrecy.without_secrets(CONNECTION),
        )
        self.assertEqual({}, secrecy.without_secrets({}))
        self.assertIsNone(secrecy.without_secrets(None))


class SeerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def sees(self, *roles, project=rows.PROJECT, service=()):
        ctx = asking.context(*roles)
        ctx.service_roles = list(service)
        return secrecy.Seer(ctx).sees(project, "u")

    def test_those_who_connect_see_them(self):
        self.assertTrue(self.sees("member", "reader"))
        self.assertTrue(self.sees("admin", project="other"))
        self.assertTrue(self.sees("service"))
        self.assertTrue(self.sees("reader", service=["service"]))

    def test_those_who_look_do_not(self):
        self.assertFalse(self.sees("reader"))
        self.assertFalse(self.sees("guest", service=["guest"]))
        self.assertFalse(self.sees("member", project="other"))

    def test_a_page_of_one_project_is_decided_once(self):
        seer = secrecy.Seer(asking.context())
        with mock.patch.object(policy, "allows", return_value=True) as allows:
            for _ in range(10):
                seer.sees("p", "u")
            seer.sees("q", "u")
        self.assertEqual(2, allows.call_count)
