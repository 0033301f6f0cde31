# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of attachments.

A connector is what os-brick's get_connector_properties() returns on a host.  It is stored with all
its keys; checked are only those that attachd itself reads.
"""

from collections.abc import Mapping
import json
from typing import Any, Final

from attachd import exception, host_identity
from attachd.api import microversions as mv
from attachd.api.validation import Schema, Validator, canonical, fields, wrapped
from attachd.context import RequestContext

HOST: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": host_identity.NAME_PATTERN,
    "description": host_identity.NAME_DESCRIPTION,
}
"""The name of a host, as connectors and agents have it."""
_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_CREATE: Final[dict[str, Schema]] = {
    "volume_uuid": _UUID,
    "instance_uuid": _UUID,
    # An empty connector, as cinderclient sends it, only reserves.
    "connector": {"type": ["object", "null"]},
    "expires_in": {"type": "integer", "minimum": 1, "maximum": 10**9},
    "host": HOST,
    "instead_of": _UUID,
    "move_from": _UUID,
}
_SINCE: Final = {
    "expires_in": mv.ATTACHD_1_0,
    "host": mv.ATTACHD_1_0,
    "instead_of": mv.ATTACHD_1_1,
    "move_from": mv.ATTACHD_1_1,
}
"""The versions of attachd's own API that have introduced fields of a creation."""
_MODE: Final[dict[str, Schema]] = {"mode": {"type": "string", "enum": ["rw", "ro"]}}
_CONNECT: Final[dict[str, Schema]] = {"connector": {"type": "object", "minProperties": 1}}

CREATE: Final = [
    (mv.NEW_ATTACH, wrapped("attachment", fields(_CREATE, "volume_uuid"))),
    (
        mv.ATTACHMENT_CREATE_MODE_ARG,
        wrapped("attachment", fields({**_CREATE, **_MODE}, "volume_uuid")),
    ),
]
UPDATE: Final = wrapped("attachment", fields(_CONNECT, "connector"))

_LINE: Final[Schema] = {
    "maxLength": 255,
    "pattern": r"\A[^\x00-\x1f\x7f]*\Z",
    "description": "a text without control characters",
}

_MAX_NAMES: Final = 2
_MAX_PORTS: Final = 48
"""How many initiators or ids a list in a connector may have; of them a host is known."""

_CONNECTOR = Validator(
    {
        "type": "object",
        "properties": {
            "host": HOST,
            "initiator": {"maxItems": _MAX_NAMES},
            "nqn": {"maxItems": _MAX_NAMES},
            "wwpns": {"maxItems": _MAX_PORTS},
            "system uuid": {"maxItems": _MAX_NAMES},
            "mountpoint": {"type": ["string", "null"], **_LINE},
            # cinderclient sends "null" for no preference.
            "mode": {"enum": ["rw", "ro", "null", None]},
        },
        "required": ["host"],
    }
)


def identity(requested: Mapping[str, Any], name: str) -> str:
    """Return an id from a body in the form that rows have."""
    return canonical(requested[name])


def check_versions(ctx: RequestContext, requested: Mapping[str, Any]) -> None:
    """Check that the version of a request has all fields of a creation that it uses.

    :raises InvalidInput: it does not, or the request is not under attachd's own API
    """
    for name, since in _SINCE.items():
        if name in requested and (ctx.attachd_version is None or ctx.attachd_version < since):
            raise exception.InvalidInput(
                field=f"attachment.{name}",
                value=requested[name],
                reason=f"It needs the header OpenStack-API-Version: attachd {since}.",
            )


def check_connector(connector: dict[str, Any], name: str = "attachment.connector") -> None:
    """Check a connector.

    :param name: of the field that it is in
    :raises InvalidInput: it does not name its host, or a value is invalid
    :raises TooLarge: it exceeds ``host_identity.MAX_CONNECTOR_SIZE``
    """
    _CONNECTOR.check(connector, name)
    if len(json.dumps(connector, separators=(",", ":"))) > host_identity.MAX_CONNECTOR_SIZE:
        raise exception.TooLarge(what="The connector", limit=host_identity.MAX_CONNECTOR_SIZE)
