# SPDX-License-Identifier: Apache-2.0
"""Connections of guests to a Ceph cluster of this machine.

The daemons are at 127.0.0.1 of this machine, and say so to their clients.
"""

from typing import Any
import unittest

from attachd.tests.fixtures.ceph import Ceph
from attachd.tests.lab import forwarder, guests


def start(test: unittest.TestCase, cluster: Ceph, guest: guests.Guest) -> None:
    """Let a guest reach the daemons at its own 127.0.0.1 until the test ends."""
    daemons = [*cluster.command("osd dump")["osds"], *cluster.command("mon dump")["mons"]]
    ports = [port for daemon in daemons for port in _ports(daemon)]
    test.addCleanup(forwarder.start(guest, ports).kill)


def _ports(daemon: Any) -> list[int]:
    addresses = [item["addr"] for item in daemon["public_addrs"]["addrvec"]]
    return [int(address.rpartition(":")[2]) for address in addresses]
