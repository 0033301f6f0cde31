# SPDX-License-Identifier: Apache-2.0
"""Bad requests for default types."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

URL = "/default-types"
ITEM = f"{URL}/p"
ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}


def _put(claim: str, says: str, body: Any, status: int = 400, path: str = ITEM) -> Row:
    return Row(f"put: {claim}", "PUT", path, body, status, says, ADMIN)


def _kind(value: Any) -> dict[str, Any]:
    return {"default_type": {"volume_type": value}}


ROWS = [
    _put("nothing", "'default_type' is a required|'x'", {"x": 1}),
    _put("null", "default_type", {"default_type": None}),
    _put("no type", "'volume_type' is a required", {"default_type": {}}),
    _put("a type of null", "default_type.volume_type", _kind(None)),
    _put("an empty type", "default_type.volume_type", _kind("")),
    _put("a type of a number", "default_type.volume_type", _kind(1)),
    _put("a type of a novel", "default_type.volume_type", _kind("x" * 256)),
    _put("an unknown name", "name nothing could not be found", _kind("nothing")),
    _put("an unknown id", "type {unknown} could not be found", _kind("{unknown}")),
    _put("a project of a novel", "not found", _kind("free"), 404, f"{URL}/{'p' * 65}"),
    Row("put: a member", "PUT", ITEM, _kind("free"), 403, "default_set_or_update", MEMBER),
    Row("show: none", "GET", ITEM, None, 404, "project p not found", ADMIN),
    Row("show: a member", "GET", ITEM, None, 403, "default_get", MEMBER),
    Row("list: a member", "GET", URL, None, 403, "default_get_all", MEMBER),
    Row("delete: a member", "DELETE", ITEM, None, 403, "default_unset", MEMBER),
]
