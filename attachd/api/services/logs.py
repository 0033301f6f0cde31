# SPDX-License-Identifier: Apache-2.0
"""Log levels of this API process and of managers, read and set at run time.

A web server may run several processes of the API: a request affects the one that handles it.  The
levels of a manager are set in all its processes, and read from one of them.
"""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import binaries, policy
from attachd.api.validation import OPTIONAL_TEXT, Schema, fields
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import manager_api
from attachd.telemetry import log_levels

Body = Mapping[str, Any]


_LOGGERS: Final = {
    "binary": {"enum": ["*", "", *binaries.ALL]},
    "server": OPTIONAL_TEXT,
    "prefix": OPTIONAL_TEXT,
}
_LEVEL: Final[Schema] = {
    "type": "string",
    "pattern": rf"\A(?i:{'|'.join(log_levels.LEVELS)})\Z",
    "description": f"a valid log level: {', '.join(log_levels.LEVELS)}",
}

GET_LOG: Final[Schema] = fields(_LOGGERS)
SET_LOG: Final[Schema] = fields({**_LOGGERS, "level": _LEVEL}, "level")


class _Levels(TypedDict):
    """The log levels of a process, by logger."""

    host: str
    binary: str
    levels: dict[str, str]


@endpoint(
    "PUT",
    "/os-services/set-log",
    since=mv.LOG_LEVEL,
    policy=policy.UPDATE,
    body=SET_LOG,
    status=202,
)
def set_log(ctx: RequestContext, body: Body) -> None:
    """Set log levels of the selected programs."""
    prefix, level = body.get("prefix") or "", body["level"].upper()
    if _selects_api(body):
        log_levels.change(prefix, level)
    if hosts := _managers(body):
        manager_api.set_log_levels(ctx, hosts, prefix, level)


@endpoint(
    "PUT",
    "/os-services/get-log",
    since=mv.LOG_LEVEL,
    policy=policy.UPDATE,
    body=GET_LOG,
    doc=EndpointDoc({"log_levels": list[_Levels]}, faults=(429, 504)),
)
def get_log(ctx: RequestContext, body: Body) -> dict[str, Any]:
    """List log levels of the selected programs."""
    prefix = body.get("prefix") or ""
    entries = []
    if _selects_api(body):
        entries.append(_shown(CONF.host, binaries.API, log_levels.current(prefix)))
    for host in _managers(body):
        levels = manager_api.get_log_levels(ctx, host, prefix)
        entries.append(_shown(host, binaries.MANAGER, levels))
    return {"log_levels": entries}


def _selects_api(body: Body) -> bool:
    """Return whether a body selects the API of this host."""
    return _selects(body, binaries.API) and body.get("server") in {None, "", CONF.host}


def _managers(body: Body) -> list[str]:
    """Return the selected backends whose managers report."""
    if not _selects(body, binaries.MANAGER):
        return []
    return [row["host"] for row in binaries.of_host(body.get("server")) if row["alive"]]


def _selects(body: Body, binary: str) -> bool:
    requested = body.get("binary")
    return requested in {None, "", "*"} or binaries.to_internal(
        str(requested)
    ) == binaries.to_internal(binary)


def _shown(host: str, binary: str, levels: Mapping[str, str]) -> dict[str, Any]:
    return {"host": host, "binary": binary, "levels": dict(levels)}
