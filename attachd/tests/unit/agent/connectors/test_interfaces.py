# SPDX-License-Identifier: Apache-2.0
"""Addresses of this host."""

import ipaddress
import unittest

from attachd import exception
from attachd.agent.connectors import interfaces


class AddressTest(unittest.TestCase):
    """Of an interface, or of any."""

    def test_the_loopback_has_its_own(self):
        self.assertEqual("127.0.0.1", interfaces.get_address("lo"))

    def test_the_kernel_chooses_one(self):
        ipaddress.ip_address(interfaces.get_address())

    def test_an_interface_without_one_is_named_with_those_there_are(self):
        for name in ("nosuch0", "a-name-that-is-much-too-long-for-one", "nosuch\u00e4"):
            with self.assertRaisesRegex(
                exception.HostError, f"{name} has no .*This host has: .*lo"
            ):
                interfaces.get_address(name)
