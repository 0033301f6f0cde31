# SPDX-License-Identifier: Apache-2.0
"""Limits that volume types set to the size of volumes."""

from collections.abc import Mapping
from typing import Any, Final

from attachd import exception

MIN_SIZE: Final = "provisioning:min_vol_size"
MAX_SIZE: Final = "provisioning:max_vol_size"
"""Extra specs with the smallest and the largest size, in GiB."""


def check(volume_type: Mapping[str, Any] | None, size_gib: int) -> None:
    """Check that a type allows a size.

    :param volume_type: the type's row; None: no type
    :raises InvalidInput: with the limit
    """
    specs = volume_type["extra_specs"] if volume_type else {}
    minimum, maximum = _gib(specs.get(MIN_SIZE)), _gib(specs.get(MAX_SIZE))
    if minimum is not None and size_gib < minimum:
        raise _out_of_range(volume_type, size_gib, f"at least {minimum}")
    if maximum is not None and size_gib > maximum:
        raise _out_of_range(volume_type, size_gib, f"at most {maximum}")


def _gib(text: str | None) -> int | None:
    """Return a limit; a value that is not a number limits nothing."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _out_of_range(
    volume_type: Mapping[str, Any] | None, size_gib: int, limit: str
) -> exception.InvalidInput:
    name = volume_type["name"] if volume_type else None
    return exception.InvalidInput(
        field="size",
        value=size_gib,
        reason=f"Volumes of the type {name} have {limit} GiB.",
    )
