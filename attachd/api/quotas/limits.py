# SPDX-License-Identifier: Apache-2.0
"""Reads the limits that requests want to set; used by the handlers of quotas."""

from collections.abc import Collection, Mapping
from typing import Any

from attachd import exception
from attachd.api import validation

_SHOWN = 10


def wanted(body: Mapping[str, Any], kind: str, known: Collection[str]) -> dict[str, int]:
    """Return the limits to be set.

    :param kind: what the body is, in words
    :param known: what can be limited
    :raises BadRequest: naming what cannot
    """
    if bad := [validation.shown(key) for key in body if key not in known]:
        raise exception.BadRequest(reason=f"Bad key(s) in {kind}: {', '.join(bad[:_SHOWN])}")
    return {name: int(limit) for name, limit in body.items()}
