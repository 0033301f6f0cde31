# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host's network interfaces; for what a connector tells of it."""

import fcntl
import ipaddress
from pathlib import Path
import socket
import struct

from attachd import exception

_SIOCGIFADDR = 0x8915
_LONGEST = 15
_REQUEST = struct.Struct("16s 24x")
# struct ifreq: the name, the family and the port of a sockaddr_in, its address.
_ANSWER = struct.Struct("16x 4x 4s 16x")
_IPV6 = Path("/proc/net/if_inet6")
_LINK_LOCAL = "20"
# An address of documentation, RFC 5737; nothing is ever sent there.
_ELSEWHERE = ("192.0.2.1", 9)


def address(nic: str | None = None) -> str:
    """Return the address of an interface, or that from which others are reached.

    :param nic: its name, such as eth0; None: the kernel's routes decide
    :raises HostError: it has none
    """
    if nic is None:
        return _outward()
    found = _ipv4(nic) or _ipv6(nic)
    if not found:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise exception.HostError(
            reason=f"Network interface {nic} has no address. This host has: {names}."
        )
    return found


def _outward() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return "127.0.0.1"  # A host without a way out has its storage within.
        return str(probe.getsockname()[0])


def _ipv4(nic: str) -> str:
    if len(nic.encode()) > _LONGEST:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, _REQUEST.pack(nic.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(_ANSWER.unpack(answer)[0])


def _ipv6(nic: str) -> str:
    try:
        lines = [line.split() for line in _IPV6.read_text().splitlines()]
    except OSError:
        return ""
    for number, _, _, scope, _, name in lines:
        # A link-local address is of no use without the name of the interface.
        if name == nic and scope != _LINK_LOCAL:
            return str(ipaddress.IPv6Address(bytes.fromhex(number)))
    return ""
