# SPDX-License-Identifier: Apache-2.0
"""How small and how large volumes of a type may be; used where volumes get a size or a type."""

from collections.abc import Mapping
from typing import Any, Final

from attachd import exception

SMALLEST: Final = "provisioning:min_vol_size"
LARGEST: Final = "provisioning:max_vol_size"
"""Extra specs; GiB."""


def check(kind: Mapping[str, Any] | None, size_gib: int) -> None:
    """Let a size pass that a type allows.

    :param kind: the type's row; None: no type
    :raises InvalidInput: naming the limit
    """
    specs = kind["extra_specs"] if kind else {}
    smallest, largest = _gib(specs.get(SMALLEST)), _gib(specs.get(LARGEST))
    if smallest is not None and size_gib < smallest:
        raise _out_of_range(kind, size_gib, f"at least {smallest}")
    if largest is not None and size_gib > largest:
        raise _out_of_range(kind, size_gib, f"at most {largest}")


def _gib(text: str | None) -> int | None:
    """Read a limit; what is no number limits nothing."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _out_of_range(
    kind: Mapping[str, Any] | None, size_gib: int, limit: str
) -> exception.InvalidInput:
    return exception.InvalidInput(
        field="size",
        value=size_gib,
        reason=f"Volumes of the type {kind['name'] if kind else None} have {limit} GiB.",
    )
