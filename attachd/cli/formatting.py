# SPDX-License-Identifier: Apache-2.0
"""Format values of the API: flat, with JSON for nested values; for the commands."""

from collections.abc import Iterable, Mapping
import datetime
import itertools
import json
from typing import Any, Final

from cliff import columns
from oslo_utils import strutils

Shown = tuple[tuple[str, ...], tuple[Any, ...]]
"""Names and their values, in cliff's format."""
Listed = tuple[tuple[str, ...], list[tuple[Any, ...]]]
"""Headings and lines, in cliff's format."""


class Json(columns.FormattableColumn[Any]):
    """A nested value: one line of JSON for people, the value itself for programs."""

    def human_readable(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.machine_readable())


class Count(columns.FormattableColumn[list[Any]]):
    """A list: its length for people, the list for programs."""

    def human_readable(self) -> str:
        """Return how many items it has."""
        return str(len(self.machine_readable()))


class Time(columns.FormattableColumn[str | None]):
    """A time of the API: to the second for people, as the API has it for programs."""

    def human_readable(self) -> str:
        """Return the time in UTC."""
        return plain_time(self.machine_readable())


class Age(columns.FormattableColumn[int | None]):
    """The seconds since a time: in the two largest units for people.

    :param moment: as the API has it; "" or None: never
    """

    def __init__(self, moment: str | None) -> None:
        super().__init__(seconds_since(moment) if moment else None)

    def human_readable(self) -> str:
        """Return the age, such as 3m12s."""
        seconds = self.machine_readable()
        return "" if seconds is None else duration(seconds)


_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_ENOUGH: Final = 10
"""Of the largest unit, to leave out the next one."""


def plain(cell: Any) -> Any:
    """Return the value of a cell as programs take it."""
    return cell.machine_readable() if isinstance(cell, columns.FormattableColumn) else cell


def duration(seconds: int) -> str:
    """Return a duration in words for people: 42s, 3m12s, 5h, 2d4h."""
    for (unit, length), (smaller, part) in itertools.pairwise(_UNITS):
        if seconds >= length:
            count, rest = divmod(seconds, length)
            more = rest // part if count < _ENOUGH else 0
            return f"{count}{unit}{f'{more}{smaller}' if more else ''}"
    return f"{seconds}s"


def seconds_since(moment: str) -> int:
    """Return how many seconds ago a time of the API was; 0: it is to come."""
    then = datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC)
    return max(int((datetime.datetime.now(datetime.UTC) - then).total_seconds()), 0)


def plain_time(moment: str | None) -> str:
    """Return a time of the API to the second; "": there is none."""
    return (moment or "").replace("T", " ").partition(".")[0]


def since(moment: str | None) -> str:
    """Return a time of the API with its age: "2026-01-31 12:00:00 UTC (3m12s ago)"."""
    if not moment:
        return ""
    return f"{plain_time(moment)} UTC ({duration(seconds_since(moment))} ago)"


def shown(values: Mapping[str, Any]) -> Shown:
    """Return names and values in their order, nested ones as JSON."""
    return tuple(values), tuple(_cell(value) for value in values.values())


def row(values: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    """Return some of the values for a line of a list; missing ones are None."""
    return tuple(_cell(values.get(name)) for name in names)


def listed(found: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Listed:
    """Return headings and lines.

    :param columns: the fields by their headings
    """
    return tuple(columns), [row(values, columns.values()) for values in found]


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with passwords masked at any depth."""
    return strutils.mask_dict_password(dict(values))


def attachment(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attachment of the API, merged with its connection info."""
    own = dict(values)
    connection = own.pop("connection_info", None) or {}
    own["attachment_id"] = own.pop("id", None)
    return dict(sorted({**connection, **own}.items()))


def connection(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection info of an attachment, or without one the attachment."""
    details = values.get("connection_info")
    if not details:
        return attachment(values)
    own = {"attachment_id": values.get("id"), "volume_id": values.get("volume_id")}
    return dict(sorted({**details, **own}.items()))


def _cell(value: Any) -> Any:
    return Json(value) if isinstance(value, dict | list | tuple) else value
