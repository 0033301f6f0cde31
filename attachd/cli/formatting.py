# SPDX-License-Identifier: Apache-2.0
"""Format values of the API: flat, with JSON for nested values; for the commands."""

from collections.abc import Iterable, Mapping
import json
from typing import Any

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
