# SPDX-License-Identifier: Apache-2.0
"""Bad requests for attachments."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

URL = "/attachments"
DETAIL = "/attachments/detail"
RESERVED = "/attachments/{reserved}"
READER = {"token": wsgi_api.READER}
MEMBER = {"token": wsgi_api.MEMBER}
ADMIN = {"token": wsgi_api.ADMIN}
BEFORE_MODE = {"version": "volume 3.53"}
OWN = {"version": f"{wsgi_api.LATEST}, attachd 1.0"}
HOST = {"host": "compute-9"}


def _create(claim: str, status: int, says: str, options: Any = None, **fields: Any) -> Row:
    body = {"attachment": {"volume_uuid": "{volume}", **fields}}
    return Row(f"create: {claim}", "POST", URL, body, status, says, options or {})


def _create_row(claim: str, status: int, says: str, who: Any = ADMIN, **fields: Any) -> Row:
    return _create(claim, status, says, {**who, **OWN}, **fields)


def _update(claim: str, status: int, says: str, connector: Any, path: str = RESERVED) -> Row:
    body = {"attachment": {"connector": connector}}
    return Row(f"update: {claim}", "PUT", path, body, status, says)


def _plain(claim: str, method: str, path: str, body: Any, status: int, says: str) -> Row:
    return Row(claim, method, path, body, status, says)


def _force(
    claim: str,
    value: str,
    status: int,
    says: str,
    who: Any = ADMIN,
    path: str = RESERVED,
) -> Row:
    options = {**who, "version": f"{wsgi_api.LATEST}, attachd 1.0"}
    path = f"{path}?force={value}"
    return Row(f"delete by force: {claim}", "DELETE", path, None, status, says, options)


def _listed(claim: str, query: str, says: str, path: str = URL) -> Row:
    return Row(f"list: {claim}", "GET", f"{path}?{query}", None, 400, says, dict(OWN))


def _keyed(claim: str, key: str, status: int, says: str) -> Row:
    body = {"attachment": {"volume_uuid": "{volume}"}}
    return Row(f"create: {claim}", "POST", URL, body, status, says, {"idempotency_key": key})


ROWS = [
    _keyed("an empty key", "", 400, "Idempotency-Key must be"),
    _keyed("a key of nothing but quotes", '""', 400, "Idempotency-Key must be"),
    _keyed("half a key", '"x', 400, "Idempotency-Key must be"),
    _keyed("two keys", '"a", "b"', 400, "Idempotency-Key must be"),
    _keyed("a key that is a novel", "x" * 100_000, 400, "Idempotency-Key must be"),
    _keyed("a key with control characters", "a\x1b[2J", 400, r"a\\x1b\[2J"),
    _keyed("a key with an umlaut", "\xe4", 400, "Idempotency-Key must be"),
    Row(
        "update: another connector, without waiting",
        "PUT",
        "/attachments/{attached}",
        {"attachment": {"connector": HOST}},
        409,
        "already connects",
        {"prefer": "respond-async"},
    ),
    Row(
        "delete: unknown, without waiting",
        "DELETE",
        "/attachments/{unknown}",
        None,
        404,
        "{unknown}",
        {"prefer": "respond-async"},
    ),
    _plain("create: no attachment", "POST", URL, {}, 400, "'attachment' is a required"),
    _plain("create: null", "POST", URL, None, 400, "no body"),
    _plain(
        "create: attachment is null", "POST", URL, {"attachment": None}, 400, "attachment.*None"
    ),
    _plain("create: attachment is a list", "POST", URL, {"attachment": []}, 400, "'object'"),
    _plain("create: nothing in it", "POST", URL, {"attachment": {}}, 400, "volume_uuid"),
    _plain(
        "create: something beside it",
        "POST",
        URL,
        {"attachment": {"volume_uuid": "{volume}"}, "server": 1},
        400,
        "'server' was unexpected",
    ),
    _create("volume is null", 400, "attachment.volume_uuid", volume_uuid=None),
    _create("volume is a number", 400, "attachment.volume_uuid", volume_uuid=7),
    _create("volume is no uuid", 400, "volume_uuid. Value: 'x'. .*'uuid'", volume_uuid="x"),
    _create("volume is empty", 400, "attachment.volume_uuid", volume_uuid=""),
    _create("volume is a novel", 400, "attachment.volume_uuid", volume_uuid="x" * 100_000),
    _create("volume ends in a line break", 400, "volume_uuid", volume_uuid="{volume}\n"),
    _create("volume is unknown", 404, "Volume {unknown} could not", volume_uuid="{unknown}"),
    _create("volume is another's", 404, "Volume {their_volume}", volume_uuid="{their_volume}"),
    _create("volume is broken", 400, "status is error", volume_uuid="{broken_volume}"),
    _create("instance is null", 400, "attachment.instance_uuid", instance_uuid=None),
    _create("instance is no uuid", 400, "attachment.instance_uuid", instance_uuid="vm"),
    _create("instance is an object", 400, "attachment.instance_uuid", instance_uuid={"id": 1}),
    _create("an unknown field", 400, r"'colour\\n' was unexpected", **{"colour\n": 1}),
    _create("a mode before there were modes", 400, "'mode' was", BEFORE_MODE, mode="ro"),
    _create("an unknown mode", 400, "attachment.mode", mode="wr"),
    _create("the mode that answers show", 400, "attachment.mode", mode="null"),
    _create("the mode is null", 400, "attachment.mode", mode=None),
    _create("a connector of text", 400, "attachment.connector", connector="iqn.1"),
    _create("a connector without a host", 400, "'host' is a required", connector={"ip": "1"}),
    _create("a host without attachd 1.0", 400, "host.*attachd 1.0", ADMIN, host="n"),
    _create_row(
        "a host and a connector", 400, "connector.*attachment.host", host="n", connector=HOST
    ),
    _create_row("the host is null", 400, "attachment.host", host=None),
    _create_row("the host is empty", 400, "attachment.host", host=""),
    _create_row("the host is a number", 400, "attachment.host", host=1),
    _create_row("the host is a novel", 400, "attachment.host", host="x" * 256),
    _create_row("the host has control characters", 400, "attachment.host", host="a\x1b[2J"),
    _create_row("the host has a NUL", 400, "attachment.host", host="a\x00"),
    _create_row("the host is unknown", 404, "No agent of host nowhere is known", host="nowhere"),
    _create_row("a host, by a member", 403, "volume:attachment_create_on_host", MEMBER, host="n"),
    _create_row("a host that is to expire", 404, "nowhere", host="nowhere", expires_in=5),
    _create("a reader", 403, "volume:attachment_create", READER),
    _plain("update: nothing", "PUT", RESERVED, {"attachment": {}}, 400, "'connector' is a req"),
    _plain(
        "update: another field",
        "PUT",
        RESERVED,
        {"attachment": {"connector": HOST, "mode": "ro"}},
        400,
        "'mode' was unexpected",
    ),
    _update("null", 400, "attachment.connector", None),
    _update("empty", 400, "attachment.connector", {}),
    _update("a list", 400, "attachment.connector", ["host"]),
    _update("no host", 400, "'host' is a required property", {"ip": "192.0.2.1"}),
    _update("host is null", 400, "attachment.connector.host", {"host": None}),
    _update("host is empty", 400, "attachment.connector.host", {"host": ""}),
    _update("host is a number", 400, "attachment.connector.host", {"host": 5}),
    _update("host is a novel", 400, "attachment.connector.host", {"host": "x" * 256}),
    _update(
        "host has control characters", 400, r"host. Value: 'a\\x1b\[2J'", {"host": "a\x1b[2J"}
    ),
    _update("a NUL", 400, "attachment.connector.host", {"host": "a\x00b"}),
    _update("a NUL far inside", 400, r"connector.x.1.y", {**HOST, "x": [0, {"y": "\x00"}]}),
    _update("half a character", 400, "connector.x", {**HOST, "x": "\ud800"}),
    _update("mountpoint is a number", 400, "connector.mountpoint", {**HOST, "mountpoint": 5}),
    _update("mountpoint is a novel", 400, "mountpoint", {**HOST, "mountpoint": "/" * 256}),
    _update("an unknown mode", 400, "connector.mode", {**HOST, "mode": "append"}),
    _update(
        "too large", 413, "connector is too large: at most 65536", {**HOST, "x": "y" * 70_000}
    ),
    _update("unknown", 404, "attachment_id = {unknown}", HOST, "/attachments/{unknown}"),
    _update("another's", 404, "attachment_id = {theirs}", HOST, "/attachments/{theirs}"),
    _update("connected to another host", 409, "already connects", HOST, "/attachments/{attached}"),
    Row(
        "update: a reader",
        "PUT",
        RESERVED,
        {"attachment": {"connector": HOST}},
        403,
        "volume:attachment_update",
        READER,
    ),
    _plain("complete: nothing", "POST", f"{RESERVED}/action", {}, 400, "one key"),
    _plain("complete: a list", "POST", f"{RESERVED}/action", ["os-complete"], 400, "one key"),
    _plain(
        "complete: two", "POST", f"{RESERVED}/action", {"os-complete": 1, "x": 2}, 400, "one key"
    ),
    _plain(
        "complete: unknown", "POST", f"{RESERVED}/action", {"os-x": 1}, 400, "no such action: os-x"
    ),
    _plain(
        "complete: unknown id",
        "POST",
        "/attachments/{unknown}/action",
        {"os-complete": 1},
        404,
        "attachment_id = {unknown}",
    ),
    _plain(
        "complete: another's",
        "POST",
        "/attachments/{theirs}/action",
        {"os-complete": 1},
        404,
        "attachment_id = {theirs}",
    ),
    _plain(
        "complete: failed",
        "POST",
        "/attachments/{failed}/action",
        {"os-complete": 1},
        409,
        "{failed} is connect_unknown and cannot be completed",
    ),
    Row(
        "complete: a reader",
        "POST",
        f"{RESERVED}/action",
        {"os-complete": 1},
        403,
        "volume:attachment_complete",
        READER,
    ),
    _plain("show: unknown", "GET", "/attachments/{unknown}", None, 404, "{unknown}"),
    _plain("show: another's", "GET", "/attachments/{theirs}", None, 404, "{theirs}"),
    _plain("show: no uuid", "GET", "/attachments/x'y%22", None, 404, "attachment_id = x'y\""),
    _plain("delete: unknown", "DELETE", "/attachments/{unknown}", None, 404, "{unknown}"),
    _plain("delete: another's", "DELETE", "/attachments/{theirs}", None, 404, "{theirs}"),
    _force("garbage", "maybe", 400, "force. Value: 'maybe'. It must be true"),
    _force("nothing", "", 400, "force.*true or false"),
    _force("a novel", "y" * 5000, 400, "force.*true or false"),
    _force("a member", "true", 403, "volume:attachment_delete_force", MEMBER),
    _force("a reader", "true", 403, "volume:attachment_delete ", READER),
    _force("unknown", "true", 404, "{unknown}", path="/attachments/{unknown}"),
    _force("no reason", "true&override_reason=%20", 400, "override_reason"),
    Row("delete: a reader", "DELETE", RESERVED, None, 403, "volume:attachment_delete", READER),
    Row(
        "list: nobody in particular",
        "GET",
        URL,
        None,
        403,
        "volume:attachment_get_all",
        {"token": f"{'x' * 8}:{wsgi_api.PROJECT}:"},
    ),
    _plain(
        "list: unknown filter", "GET", f"{URL}?colour=red", None, 400, "Invalid filters colour"
    ),
    _plain(
        "list: filter in unicode", "GET", f"{URL}?f%C3%A4rbe=rot", None, 400, "Invalid filters"
    ),
    _listed("a time without an operator", "created_at=2026-01-01", "attribute created_at"),
    _listed("an unknown operator", "updated_at=about:2026-01-01", "attribute updated_at"),
    _listed("a time that is none", "attached_at=lt:yesterday", "attribute attached_at"),
    _listed("a month that is none", "created_at=lt:2026-13-01", "attribute created_at"),
    _listed("a time out of bounds", "created_at=gt:0001-01-01T00:00:00%2B23:00", "created_at"),
    _listed("more times than fit", f"created_at={'gt:2026-01-01,' * 200}", "created_at", DETAIL),
    _listed("an inner state", "status=connecting", "attribute status"),
    _listed("a status that is a novel", f"attach_status={'x' * 3000}", "attach_status"),
    _listed("a filter of nobody", "colour=red", "Invalid filters colour"),
    _plain("list: limit below zero", "GET", f"{URL}?limit=-1", None, 400, "limit must be"),
    _plain("list: limit is text", "GET", f"{URL}?limit=ten", None, 400, "limit must be"),
    _plain("list: offset is huge", "GET", f"{URL}?offset={'9' * 40}", None, 400, "offset must be"),
    _plain("list: marker is unknown", "GET", f"{URL}?marker={{unknown}}", None, 404, "Marker"),
    _plain("list: marker is another's", "GET", f"{URL}?marker={{theirs}}", None, 404, "Marker"),
    _plain("list: unknown sort key", "GET", f"{URL}?sort=connector", None, 400, "sort key 'conn"),
    _plain(
        "list: unknown direction", "GET", f"{URL}?sort=id:up", None, 400, "sort direction 'up'"
    ),
    _plain("list: a NUL", "GET", f"{URL}?volume_id=%00", None, 400, "volume_id"),
    _plain("list: no UTF-8", "GET", f"{URL}?volume_id=%FF", None, 400, "UTF-8"),
]
