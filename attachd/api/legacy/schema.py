# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of the actions that attach volumes."""

from collections.abc import Mapping
from typing import Any, Final

from attachd.api.attachments import schema
from attachd.api.validation import TEXT, Schema, canonical, fields

_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_CONNECTOR: Final[dict[str, Schema]] = {"connector": {"type": ["object", "null"]}}

ATTACH: Final[Schema] = {
    **fields(
        {
            "instance_uuid": _UUID,
            "host_name": schema.HOST,
            "mountpoint": {**TEXT, "minLength": 1},
            "mode": {"type": "string", "enum": ["rw", "ro"]},
        },
        "mountpoint",
    ),
    "anyOf": [{"required": ["instance_uuid"]}, {"required": ["host_name"]}],
    "description": "something with an instance_uuid or a host_name",
}

DETACH: Final[Schema] = {
    **fields({"attachment_id": {"type": ["string", "null"], "format": "uuid"}}),
    "type": ["object", "null"],
}

FORCE_DETACH: Final = fields(
    {**_CONNECTOR, "attachment_id": {"type": ["string", "null"], "maxLength": 255}}
)

INITIALIZE: Final = fields({"connector": {"type": "object", "minProperties": 1}}, "connector")
TERMINATE: Final = fields(_CONNECTOR, "connector")


def check_connector(connector: dict[str, Any]) -> None:
    """Check a connector; see attachments.schema."""
    schema.check_connector(connector, "os-initialize_connection.connector")


def instance_id(body: Mapping[str, Any]) -> str | None:
    """Return the id of the server in a body, or None."""
    return _id(body, "instance_uuid")


def attachment_id(body: Mapping[str, Any] | None) -> str | None:
    """Return the id of the attachment in a body, or None."""
    return _id(body or {}, "attachment_id")


def _id(body: Mapping[str, Any], name: str) -> str | None:
    named = body.get(name)
    return canonical(named) if named else None
