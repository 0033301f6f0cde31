# SPDX-License-Identifier: Apache-2.0
"""Bad requests for services, pools and limits."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}
BINARY = "cinder-volume"


def _switch(claim: str, says: str, body: Any, verb: str = "disable", status: int = 400) -> Row:
    path = f"/os-services/{verb}"
    return Row(f"{verb}: {claim}", "PUT", path, body, status, says, ADMIN)


def _get(claim: str, path: str, status: int, says: str, options: Any = None) -> Row:
    return Row(claim, "GET", path, None, status, says, options or ADMIN)


def _put(claim: str, says: str, path: str, body: Any, status: int = 400) -> Row:
    return Row(f"{path}: {claim}", "PUT", path, body, status, says, ADMIN)


def _log(claim: str, says: str, **body: Any) -> Row:
    return _put(claim, says, "/os-services/set-log", {"level": "INFO", **body})


_BACKEND_VERBS = ("freeze", "thaw", "failover_host", "failover")

ROWS = [
    *(
        row
        for verb in _BACKEND_VERBS
        for row in (
            _put("nothing", "One and only one of cluster and", f"/os-services/{verb}", {}),
            _put("unknown", "host=h$", f"/os-services/{verb}", {"host": "h"}),
            _put("a cluster", "cluster=c$", f"/os-services/{verb}", {"cluster": "c"}),
            _put("both", "One and only", f"/os-services/{verb}", {"host": "h", "cluster": "c"}),
            _put("a host of null", "attribute host", f"/os-services/{verb}", {"host": None}),
            _put("an unknown field", "'x' was", f"/os-services/{verb}", {"host": "h", "x": 1}),
        )
    ),
    _put("known", "cannot fail over", "/os-services/failover_host", {"host": "here@fake"}),
    _put("not frozen", "is not frozen", "/os-services/thaw", {"host": "here@fake"}),
    _put("a backend of a number", "backend_id", "/os-services/failover", {"backend_id": 1}),
    _put("no level", "'level' is a required", "/os-services/set-log", {}),
    _log("a level of null", "attribute level", level=None),
    _log("an unknown level", "'TRACE' is not a valid log level", level="TRACE"),
    _log("a level and a line break", "not a valid log level", level="INFO\n"),
    _log("an unknown program", "attribute binary", binary="nova-api"),
    _log("a program of null", "attribute binary", binary=None),
    _log("a prefix of a list", "attribute prefix", prefix=[]),
    _log("a server of a novel", "attribute server", server="s" * 256),
    _put("a level", "'level' was", "/os-services/get-log", {"level": "INFO"}),
    _put("an unknown program", "attribute binary", "/os-services/get-log", {"binary": 1}),
    _switch("nothing", "required", {}),
    _switch("no binary", "is not a service, .* its binary", {"host": "h"}),
    _switch("no host", "'host' is a required", {"binary": BINARY}),
    _switch("a host of null", "attribute host", {"host": None, "binary": BINARY}),
    _switch("a host of a novel", "attribute host", {"host": "h" * 256, "binary": BINARY}),
    _switch("a binary of a list", "attribute binary", {"host": "h", "binary": []}),
    _switch("an unknown field", "'x' was", {"host": "h", "binary": BINARY, "x": 1}),
    _switch("unknown", "could not be found", {"host": "h", "binary": BINARY}, status=404),
    _switch("unknown", "could not be found", {"host": "h", "binary": BINARY}, "enable", 404),
    _switch(
        "an empty reason",
        "disabled_reason",
        {"host": "h", "binary": BINARY, "disabled_reason": ""},
        "disable-log-reason",
    ),
    _switch(
        "a reason of a novel",
        "disabled_reason",
        {"host": "h", "binary": BINARY, "disabled_reason": "x" * 256},
        "disable-log-reason",
    ),
    Row(
        "disable: a member",
        "PUT",
        "/os-services/disable",
        {"host": "h", "binary": BINARY},
        403,
        "volume_extension:services:update",
        MEMBER,
    ),
    _get("list: a member", "/os-services", 403, "volume_extension:services:index", MEMBER),
    _get("pools: a member", "/scheduler-stats/get_pools", 403, "get_pools", MEMBER),
    _get("pools: nonsense", "/scheduler-stats/get_pools?detail=x", 400, "attribute detail"),
    _get("pools: unknown filter", "/scheduler-stats/get_pools?colour=red", 400, "colour"),
    _get("pools: unknown type", "/scheduler-stats/get_pools?volume_type=x", 404, "type .*x could"),
    _get("capabilities: unknown", "/capabilities/nowhere", 404, "find service: nowhere"),
    _get("capabilities: a member", "/capabilities/h", 403, "capabilities", MEMBER),
    _get("extension: unknown", "/extensions/os-snapshot-actions", 404, "could not be found"),
    _get(
        "filters: before 3.33",
        "/resource_filters",
        404,
        "3.32",
        {"version": "volume 3.32", "token": wsgi_api.MEMBER},
    ),
    _get(
        "summary: before 3.12",
        "/volumes/summary",
        404,
        "3.11 is not supported",
        {"version": "volume 3.11", "token": wsgi_api.MEMBER},
    ),
]
