# SPDX-License-Identifier: Apache-2.0
"""The key of hosts without an agent; test_driver.py has its use."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd.host_key import HostKey


def key_of_hosts(**options):
    known = {"rbd_secret_uuid": "s1", "rbd_libvirt_user": "nova", **options}
    return HostKey(mock.Mock(), mock.Mock(**known))


class HostKeyTest(unittest.TestCase):
    def test_connection_names_secret_and_user(self):
        info = {"driver_volume_type": "rbd", "data": {"access_mode": "rw", "auth_username": "a"}}
        made = key_of_hosts().connect(info)
        expected = {"access_mode": "rw", "auth_username": "nova", "secret_uuid": "s1"}
        self.assertEqual(expected, made.answer["data"])
        self.assertEqual({"user": "nova"}, made.provider_secrets)

    def test_connection_without_key_or_for_reading_is_refused(self):
        for options, mode in (({}, "ro"), ({"rbd_secret_uuid": None}, "rw")):
            info = {"driver_volume_type": "rbd", "data": {"access_mode": mode}}
            with self.assertRaises(exception.BackendError) as raised:
                key_of_hosts(**options).connect(info)
            self.assertTrue(raised.exception.final)

    def test_user_is_that_of_connection_or_of_options(self):
        export = base.Export("a1", {}, provider_secrets={"user": "former"})
        self.assertEqual("client.former", key_of_hosts().get_user(export))
        self.assertEqual("client.nova", key_of_hosts().get_user(base.Export("a1", {})))
