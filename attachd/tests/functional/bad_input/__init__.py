# SPDX-License-Identifier: Apache-2.0
"""Tables of bad requests, a module with ROWS for each resource; test_bad_input sends them all.

Texts may name ids of the :data:`World`: ``"/attachments/{attached}"``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

# These two are modules of this package too.
from attachd.db.types import qos_specs as qos_db
from attachd.db.types import store as types_db
from attachd.tests.fixtures import db_rows, wsgi_api

UNKNOWN = "99999999-9999-4999-8999-999999999999"

World = Mapping[str, str]
"""Ids by what they are of: volume, broken_volume, their_volume, attached_volume,
reserved_volume; attachments that are reserved, attached, failed, theirs; type, used_type,
limited_type, private_type; qos, used_qos; unknown."""


class Row(NamedTuple):
    """One wrong request.

    :ivar claim: the error in the request
    :ivar status: of the answer
    :ivar says: a regular expression for the message
    :ivar options: of WsgiApi.request()
    """

    claim: str
    method: str
    path: str
    body: Any
    status: int
    says: str
    options: Mapping[str, Any] = {}


def world() -> World:
    """Put something into the database to be wrong about."""
    volume = db_rows.add_volume()["id"]
    broken = db_rows.add_volume(state="error")["id"]
    theirs = db_rows.add_volume(project_id="b" * 32)["id"]
    attached, reserved = _attachment("attached"), _attachment("reserved")
    used_qos = qos_db.create("used", "both", {})["id"]
    used = types_db.create({"name": "used"})["id"]
    db_rows.change_volume(volume, volume_type_id=used)
    return {
        "volume": volume,
        "broken_volume": broken,
        "their_volume": theirs,
        "attached_volume": db_rows.get_attachment(attached)["volume_id"],
        "reserved_volume": db_rows.get_attachment(reserved)["volume_id"],
        "reserved": reserved,
        "attached": attached,
        "failed": _attachment("connect_unknown"),
        "theirs": db_rows.add_attachment(theirs, project_id="b" * 32)["id"],
        "type": types_db.create({"name": "free"})["id"],
        "used_type": used,
        "limited_type": types_db.create({"name": "limited", "qos_specs_id": used_qos})["id"],
        "private_type": types_db.create({"name": "private", "is_public": False})["id"],
        "qos": qos_db.create("free", "front-end", {"k": "v"})["id"],
        "used_qos": used_qos,
        "unknown": UNKNOWN,
    }


def _attachment(state: str) -> str:
    found: str = db_rows.add_attachment(db_rows.add_volume()["id"], state)["id"]
    return found


def filled(value: Any, world: World) -> Any:
    """Put the world's ids where texts name them."""
    if isinstance(value, str):
        for name, identity in world.items():
            value = value.replace(f"{{{name}}}", identity)
        return value
    if isinstance(value, Mapping):
        return {filled(key, world): filled(each, world) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, world) for each in value]
    return value


def send(api: wsgi_api.WsgiApi, row: Row, world: World) -> wsgi_api.Response:
    """Send one of the rows."""
    return api.request(
        row.method, filled(row.path, world), filled(row.body, world), **filled(row.options, world)
    )
