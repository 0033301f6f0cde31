# SPDX-License-Identifier: Apache-2.0
"""Tables of bad requests, a YAML file for each resource; test_bad_input sends them all.

A file is a list of requests, each with ``cases``.  A case has the ``claim``, which is the error in
the request, a regular expression for the ``message``, the ``status`` if it is not 400, the
``body``, and ``options`` of WsgiApi.request().  Texts may name what is in the :data:`World`
(``"/attachments/{attached}"``) and repeat a text (``"{x*256}"``).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
import re
from typing import Any, NamedTuple

import yaml

from attachd.db.types import qos_specs as qos_db
from attachd.db.types import type_store
from attachd.tests.fixtures import db_rows, wsgi_api

UNKNOWN = "99999999-9999-4999-8999-999999999999"

World = Mapping[str, str]
"""Ids by what they are of: volume, broken_volume, their_volume, attached_volume,
reserved_volume; snapshot, their_snapshot; attachments that are reserved, attached, failed, theirs;
type, used_type, limited_type, private_type; qos, used_qos; unknown.  Tokens: admin, member,
reader.  The project, and the latest version."""


_REPEATED = re.compile(r"\{([^{}]+)\*(\d+)\}")


class Case(NamedTuple):
    """One bad request, with the ids of the world.

    :ivar resource: the name of the file
    """

    resource: str
    claim: str
    method: str
    path: str
    body: Any
    status: int
    message: str
    options: Mapping[str, Any]


def world() -> World:
    """Add the rows that bad requests name."""
    volume = db_rows.add_volume()["id"]
    broken = db_rows.add_volume(state="error")["id"]
    theirs = db_rows.add_volume(project_id="b" * 32)["id"]
    attached, reserved = _attachment("attached"), _attachment("reserved")
    used_qos = qos_db.create("used", "both", {})["id"]
    used = type_store.create({"name": "used"})["id"]
    db_rows.change_volume(volume, volume_type_id=used)
    return {
        "volume": volume,
        "broken_volume": broken,
        "their_volume": theirs,
        "attached_volume": db_rows.get_attachment(attached)["volume_id"],
        "reserved_volume": db_rows.get_attachment(reserved)["volume_id"],
        "snapshot": db_rows.add_snapshot(broken)["id"],
        "their_snapshot": db_rows.add_snapshot(theirs, project_id="b" * 32)["id"],
        "reserved": reserved,
        "attached": attached,
        "failed": _attachment("connect_unknown"),
        "theirs": db_rows.add_attachment(theirs, project_id="b" * 32)["id"],
        "type": type_store.create({"name": "free"})["id"],
        "used_type": used,
        "limited_type": type_store.create({"name": "limited", "qos_specs_id": used_qos})["id"],
        "private_type": type_store.create({"name": "private", "is_public": False})["id"],
        "qos": qos_db.create("free", "front-end", {"k": "v"})["id"],
        "used_qos": used_qos,
        "unknown": UNKNOWN,
        "admin": wsgi_api.ADMIN,
        "member": wsgi_api.MEMBER,
        "reader": wsgi_api.READER,
        "project": wsgi_api.PROJECT,
        "latest": wsgi_api.LATEST,
    }


def _attachment(state: str) -> str:
    attachment: str = db_rows.add_attachment(db_rows.add_volume()["id"], state)["id"]
    return attachment


def cases(world: World) -> Iterator[Case]:
    """Read all tables."""
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        for request in _filled(yaml.safe_load(file.read_text(encoding="utf-8")), world):
            method, _, path = request["request"].partition(" ")
            options = request.get("options", {})
            for case in request["cases"]:
                yield Case(
                    file.stem,
                    case["claim"],
                    method,
                    path,
                    case.get("body"),
                    case.get("status", 400),
                    case["message"],
                    case.get("options", options),
                )


def _filled(value: Any, world: World) -> Any:
    """Put ids and repeated texts where texts name them."""
    if isinstance(value, str):
        for name, text in world.items():
            value = value.replace(f"{{{name}}}", text)
        return _REPEATED.sub(lambda match: match[1] * int(match[2]), value)
    if isinstance(value, Mapping):
        return {_filled(key, world): _filled(content, world) for key, content in value.items()}
    if isinstance(value, list):
        return [_filled(item, world) for item in value]
    return value
