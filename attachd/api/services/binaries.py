# SPDX-License-Identifier: Apache-2.0
"""What this service's programs are called on the wire; used by handlers of services and hosts.

Clients, and what administrators have built on them, look for the programs of the Block Storage
service by the names that they have had for ever.  In requests our own names will do as well.
"""

from types import MappingProxyType
from typing import Final

from attachd import scheduler

MANAGER: Final = "cinder-volume"
API: Final = "cinder-api"
ELSEWHERE: Final = ("cinder-scheduler", "cinder-backup")
"""Programs that clients may ask for, and that this service does not have."""

OWN_API: Final = "attachd-api"

_OWN: Final = MappingProxyType({MANAGER: scheduler.BINARY, API: OWN_API})
_SHOWN: Final = MappingProxyType({own: shown for shown, own in _OWN.items()})

ALL: Final = (*_OWN, *_OWN.values(), *ELSEWHERE)
"""Every name that a request may give."""


def own(name: str) -> str:
    """Return what we call a program that a request names."""
    return _OWN.get(name, name)


def shown(binary: str) -> str:
    """Return what answers call one of our programs."""
    return _SHOWN.get(binary, binary)
