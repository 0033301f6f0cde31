# SPDX-License-Identifier: Apache-2.0
"""Further networks of the guests, of which the cable to each guest can be pulled.

The lab's guests share one private network.  These are VLANs in it, so that a test has several
paths between two guests.  A guest that is booted again is in none of them.
"""

from typing import Final

from attachd.tests.lab import guests

_ADD: Final = """\
modprobe 8021q
test -e /sys/class/net/{device} ||
    ip link add link {card} name {device} type vlan id {number}
ip address replace {address}/24 dev {device}
ip link set {device} up
"""


class Network:
    """A network in which a guest has the last number of its private address.

    :param number: of the VLAN; 1 to 254
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._device = f"vlan{number}"

    def add(self, guest: guests.Guest) -> str:
        """Connect a guest, and return its address."""
        address = f"10.78.{self._number}.{guest.private_address.rpartition('.')[2]}"
        line = _ADD.format(
            card=guests.PRIVATE_NETWORK,
            device=self._device,
            number=self._number,
            address=address,
        )
        guest.run(line)
        return address

    def pull_cable(self, guest: guests.Guest) -> None:
        """Disconnect a guest: packets to and from it are dropped without an error."""
        guest.run(f"ip link set {self._device} down")

    def plug_in(self, guest: guests.Guest) -> None:
        """Connect a guest again."""
        guest.run(f"ip link set {self._device} up")
