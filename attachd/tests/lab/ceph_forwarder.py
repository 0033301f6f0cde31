# SPDX-License-Identifier: Apache-2.0
"""Connections of guests to a Ceph cluster of this machine.

The daemons are at 127.0.0.1 of this machine, and say so to their clients.
"""

from typing import Any
import unittest

from attachd.tests.fixtures.ceph import Ceph
from attachd.tests.lab import guests

_FORWARD = f"""\
import asyncio, sys

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def forward(port):
    async def connect(*accepted):
        opened = await asyncio.open_connection("{guests.MACHINE}", port)
        pairs = (accepted[0], opened[1]), (opened[0], accepted[1])
        await asyncio.gather(*(copy(*pair) for pair in pairs), return_exceptions=True)
    await asyncio.start_server(connect, "127.0.0.1", port)

async def main():
    for port in map(int, sys.argv[1:]):
        await forward(port)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def start(test: unittest.TestCase, cluster: Ceph, guest: guests.Guest) -> None:
    """Let a guest reach the daemons at its own 127.0.0.1 until the test ends."""
    daemons = [*cluster.command("osd dump")["osds"], *cluster.command("mon dump")["mons"]]
    ports = [port for daemon in daemons for port in _ports(daemon)]
    program = guests.Program(guest.lab, guest.name, "python3", "-c", _FORWARD, *ports)
    test.addCleanup(program.kill)
    program.wait_for_lines(1)


def _ports(daemon: Any) -> list[str]:
    addresses = [item["addr"] for item in daemon["public_addrs"]["addrvec"]]
    return [address.rpartition(":")[2] for address in addresses]
