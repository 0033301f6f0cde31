# SPDX-License-Identifier: Apache-2.0
"""Addresses of this host."""

import ipaddress
import unittest

from attachd import exception
from attachd.agent.connectors import interfaces


class AddressTest(unittest.TestCase):
    """The address of an interface, or of any."""

    def test_loopback_address_is_found(self):
        self.assertEqual("127.0.0.1", interfaces.get_address("lo"))

    def test_address_without_nic_is_valid(self):
        ipaddress.ip_address(interfaces.get_address())

    def test_interface_without_address_raises_with_names(self):
        for name in ("nosuch0", "a-name-that-is-much-too-long-for-one", "nosuch\u00e4"):
            with self.assertRaisesRegex(
                exception.HostError, f"{name} has no .*This host has: .*lo"
            ):
                interfaces.get_address(name)
