# SPDX-License-Identifier: Apache-2.0
"""Filters that compare times, such as ``created_at=gt:2026-01-01T00:00:00``; for the lists."""

import datetime
from typing import Final

from oslo_utils import timeutils

from attachd import exception
from attachd.api import validation
from attachd.db.paging import VERBS, Comparison

_MOST: Final = 100
"""How many one filter may compare with; SQLite refuses statements with many more."""


def comparisons(name: str, text: str) -> list[Comparison]:
    """Read ``gt:2026-01-01T00:00:00,lte:2026-02-01T00:00:00``.

    :param name: the filter's, which is that of the column as well
    :raises InvalidInput: it is something else
    """
    parts = text.split(",")
    if len(parts) > _MOST:
        raise _wrong(name, text, f"It has more than {_MOST} times.")
    found = []
    for part in parts:
        verb, _, moment = part.partition(":")
        if verb not in VERBS:
            raise _wrong(name, text, f"Its operator is none of {', '.join(VERBS)}.")
        found.append(Comparison(name, verb, _moment(name, moment)))
    return found


def _moment(name: str, text: str) -> datetime.datetime:
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(text))
    except (ValueError, OverflowError):
        raise _wrong(name, text, "The time must be in ISO 8601 format.") from None


def _wrong(name: str, text: str, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=name, value=validation.abbreviate(text), reason=reason)
