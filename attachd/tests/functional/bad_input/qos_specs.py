# SPDX-License-Identifier: Apache-2.0
"""Bad requests for QoS specs."""

from collections.abc import Mapping
from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

URL = "/qos-specs"
ITEM = "/qos-specs/{qos}"
GONE = "/qos-specs/{unknown}"
ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}


def _create(claim: str, says: str, status: int = 400, **fields: Any) -> Row:
    return _created(claim, says, fields, status)


def _created(claim: str, says: str, fields: Mapping[str, Any], status: int = 400) -> Row:
    body = {"qos_specs": {"name": "new", **fields}}
    return Row(f"create: {claim}", "POST", URL, body, status, says, ADMIN)


def _update(claim: str, says: str, specs: Any, status: int = 400, path: str = ITEM) -> Row:
    return Row(f"update: {claim}", "PUT", path, {"qos_specs": specs}, status, says, ADMIN)


def _keys(claim: str, says: str, keys: Any, status: int = 400, path: str = ITEM) -> Row:
    url = f"{path}/delete_keys"
    return Row(f"delete keys: {claim}", "PUT", url, {"keys": keys}, status, says, ADMIN)


def _get(claim: str, path: str, status: int, says: str, options: Any = None) -> Row:
    return Row(claim, "GET", path, None, status, says, options or ADMIN)


ROWS = [
    Row("create: nothing", "POST", URL, {"x": 1}, 400, "'qos_specs' is a required|'x'", ADMIN),
    Row("create: null", "POST", URL, {"qos_specs": None}, 400, "qos_specs", ADMIN),
    Row("create: no name", "POST", URL, {"qos_specs": {}}, 400, "'name' is a required", ADMIN),
    _create("a name of null", "qos_specs.name", name=None),
    _create("a blank name", "qos_specs.name", name="   "),
    _create("a name of a novel", "qos_specs.name", name="x" * 256),
    _create("a name that is taken", "Specs used already exists", 409, name="used"),
    _create("somebody's consumer", "qos_specs.consumer", consumer="me"),
    _create("a consumer of null", "qos_specs.consumer", consumer=None),
    _create("a value of a number", "qos_specs.total_iops_sec", total_iops_sec=500),
    _create("a value of a novel", "qos_specs.k", k="x" * 256),
    _create("nonsense to compute with", "whole number", total_iops_sec_per_gb="many"),
    _create("a negative number", "whole number", read_bytes_sec_max="-1"),
    _create("a number that is too large", "whole number", total_iops_sec_per_gb_min="9" * 19),
    _created("an empty key", "unexpected", {"": "1"}),
    _created("a strange key", "unexpected", {"a=b": "1"}),
    _update("null", "qos_specs", None),
    _update("a value of a number", "qos_specs.k", {"k": 1}),
    _update("nonsense to compute with", "not of type", {"write_iops_sec_per_gb": None}),
    _update("somebody's consumer", "qos_specs.consumer", {"consumer": "me"}),
    _update("another name", "'name' was unexpected", {"name": "other"}),
    _update("unknown", "No such QoS spec {unknown}", {"k": "v"}, 404, GONE),
    _keys("null", "keys", None),
    _keys("text", "keys", "k"),
    _keys("an empty one", "keys.0", [""]),
    _keys("a number", "keys.0", [1]),
    _keys("one twice", "non-unique", ["k", "k"]),
    _keys("not there", "no spec with key z", ["k", "z"], 404),
    _keys("unknown", "No such QoS spec", ["k"], 404, GONE),
    _get("show: unknown", GONE, 404, "No such QoS spec"),
    _get("show: a member", ITEM, 403, "qos_specs_manage:get", MEMBER),
    _get("list: a member", URL, 403, "qos_specs_manage:get_all", MEMBER),
    _get("list: unknown filter", f"{URL}?colour=red", 400, "colour"),
    _get("list: unknown marker", f"{URL}?marker={{unknown}}", 404, "Marker"),
    _get("associations: unknown", f"{GONE}/associations", 404, "No such QoS spec"),
    _get("associate: nothing", f"{ITEM}/associate", 400, "Volume Type id"),
    _get("associate: no type", f"{ITEM}/associate?vol_type_id={{unknown}}", 404, "type {unknown}"),
    _get("associate: unknown", f"{GONE}/associate?vol_type_id={{type}}", 404, "No such QoS spec"),
    _get("associate: others", f"{ITEM}/associate?vol_type_id={{limited_type}}", 400, "{used_qos}"),
    _get("disassociate: nothing", f"{ITEM}/disassociate", 400, "Volume Type id"),
    _get("disassociate: no type", f"{ITEM}/disassociate?vol_type_id=x", 404, "type x could"),
    _get("disassociate: unknown", f"{GONE}/disassociate?vol_type_id={{type}}", 404, "No such QoS"),
    _get("disassociate all: unknown", f"{GONE}/disassociate_all", 404, "No such QoS spec"),
    Row("delete: in use", "DELETE", "/qos-specs/{used_qos}", None, 400, "still in use", ADMIN),
    Row("delete: unknown", "DELETE", GONE, None, 404, "No such QoS spec", ADMIN),
    Row("delete: perhaps", "DELETE", f"{ITEM}?force=perhaps", None, 400, "force", ADMIN),
    Row("delete: a member", "DELETE", ITEM, None, 403, "qos_specs_manage:delete", MEMBER),
]
