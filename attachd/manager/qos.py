# SPDX-License-Identifier: Apache-2.0
"""What a host is told to limit a volume to; called when a connection is recorded.

Source: the Block Storage service's administration guide, basic volume quality of service.
"""

from collections.abc import Mapping
import itertools
from typing import Final

_LIMITS: Final = tuple(
    f"{who}_{what}_sec"
    for who, what in itertools.product(("read", "write", "total"), ("iops", "bytes"))
)

Specs = dict[str, str | int | None]


def scaled(specs: Mapping[str, str | None], size_gib: int) -> Specs:
    """Turn limits per GiB into limits of a volume; all other keys stay as they are.

    ``total_iops_sec_per_gb`` becomes ``total_iops_sec``, not less than
    ``total_iops_sec_per_gb_min`` and not more than ``total_iops_sec_max``.
    """
    found: Specs = dict(specs)
    for limit in _LIMITS:
        per_gib = _number(found, f"{limit}_per_gb")
        if per_gib is None:
            continue
        value = per_gib * size_gib
        least, most = _number(found, f"{limit}_per_gb_min"), _number(found, f"{limit}_max")
        value = value if least is None else max(value, least)
        found[limit] = value if most is None else min(value, most)
        for key in (f"{limit}_per_gb", f"{limit}_per_gb_min", f"{limit}_max"):
            found.pop(key, None)
    return found


def _number(specs: Mapping[str, str | int | None], key: str) -> int | None:
    text = str(specs.get(key))
    return int(text) if text.isascii() and text.isdecimal() else None
