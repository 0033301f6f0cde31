# SPDX-License-Identifier: Apache-2.0
"""What the Block Storage API has and this service has not: its URLs; used by root.

Whoever knows the API asks there, so they get an answer of the API: by every method, at and below
each of these URLs, a 404 in the microversion that was asked for, with a sentence that says why.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint

THINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/snapshots": "snapshots",
        "/backups": "backups",
        "/groups": "groups of volumes",
        "/group_types": "group types",
        "/group_snapshots": "snapshots of groups",
        "/consistencygroups": "consistency groups",
        "/cgsnapshots": "snapshots of consistency groups",
        "/volume-transfers": "transfers of volumes",
        "/os-volume-transfer": "transfers of volumes",
        "/manageable_volumes": "volumes to be managed",
        "/os-volume-manage": "volumes to be managed",
        "/manageable_snapshots": "snapshots",
        "/os-snapshot-manage": "snapshots",
    }
)
"""What there is none of, by the URL below which it would be."""


def endpoints() -> list[Endpoint]:
    """Return what answers at and below each of the URLs, by any method."""
    return [
        Endpoint("*", path, mv.MINIMUM, mv.LATEST, None, None, None, 404, _answer(things), ())
        for path, things in THINGS.items()
    ]


def _answer(things: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise exception.ResourceUnsupported(things=things)

    return refuse
