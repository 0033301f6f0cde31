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
    # attachd 1.0; refused without it, see lifecycle.py
    "expires_in": {"type": "integer", "minimum": 1, "maximum": 10**9},
    # attachd 1.0; refused without it, see agent_attach.py
    "host": HOST,
    # attachd 1.1; refused without it, see fencing/force_attach.py
    "instead_of": _UUID,
    # attachd 1.1; refused without it, see moves.py
    "move_from": _UUID,
}
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


def check_connector(connector: dict[str, Any], name: str = "attachment.connector") -> None:
    """Check a connector.

    :param name: of the field that it is in
    :raises InvalidInput: it does not name its host, or a value is invalid
    :raises TooLarge: it exceeds ``host_identity.MAX_CONNECTOR_SIZE``
    """
    _CONNECTOR.check(connector, name)
    if len(json.dumps(connector, separators=(",", ":"))) > host_identity.MAX_CONNECTOR_SIZE:
        raise exception.TooLarge(what="The connector", limit=host_identity.MAX_CONNECTOR_SIZE)
