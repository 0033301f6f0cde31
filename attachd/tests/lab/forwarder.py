# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine at the same addresses in guests.

A server at 127.0.0.1 of this machine may name this address to its clients.
"""

from collections.abc import Iterable

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


def start(guest: guests.Guest, ports: Iterable[int]) -> guests.Program:
    """Let a guest reach ports of this machine at its own 127.0.0.1 until the program is killed."""
    words = [f"{port}" for port in ports]
    program = guests.Program(guest.lab, guest.name, "python3", "-c", _FORWARD, *words)
    program.wait_for_lines(1)
    return program
