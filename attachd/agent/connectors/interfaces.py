# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host's network interfaces, for its connector properties."""

import fcntl
import ipaddress
from pathlib import Path
import socket
import struct

from attachd import exception

_SIOCGIFADDR = 0x8915
_MAX_NAME_BYTES = 15
_REQUEST = struct.Struct("16s 24x")
# struct ifreq: the name, the family and the port of a sockaddr_in, its address.
_RESPONSE = struct.Struct("16x 4x 4s 16x")
_IPV6 = Path("/proc/net/if_inet6")
_LINK_LOCAL = "20"
# An address for documentation, RFC 5737; no packet is sent to it.
_EXTERNAL_ADDRESS = ("192.0.2.1", 9)


def get_address(nic: str | None = None) -> str:
    """Return the address of a network interface, or the source address of outgoing traffic.

    :param nic: its name, such as eth0; None: the kernel's routes decide
    :raises HostError: it has no address
    """
    if nic is None:
        return _outgoing_address()
    address = _ipv4_address(nic) or _ipv6_address(nic)
    if not address:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise exception.HostError(
            reason=f"Network interface {nic} has no address. This host has: {names}."
        )
    return address


def _outgoing_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_EXTERNAL_ADDRESS)
        except OSError:
            return "127.0.0.1"  # Without a route the storage can only be on this host.
        return str(probe.getsockname()[0])


def _ipv4_address(nic: str) -> str:
    if len(nic.encode()) > _MAX_NAME_BYTES:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            response = fcntl.ioctl(probe, _SIOCGIFADDR, _REQUEST.pack(nic.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(_RESPONSE.unpack(response)[0])


def _ipv6_address(nic: str) -> str:
    try:
        lines = [line.split() for line in _IPV6.read_text().splitlines()]
    except OSError:
        return ""
    for number, _, _, scope, _, name in lines:
        # A link-local address is of no use without the name of the interface.
        if name == nic and scope != _LINK_LOCAL:
            return str(ipaddress.IPv6Address(bytes.fromhex(number)))
    return ""
