# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of what agents report, checked before it is stored.

A host that has been taken over can send any values: its key identifies the agent, but does not
make them valid.  The server checks the key first.
"""

from collections.abc import Mapping
import json
from typing import Any, Final

import jsonschema

from attachd import exception, host_identity, objects
from attachd.conf.agent import MAX_ATTACHMENTS
from attachd.conf.manager import MAX_LEASE
from attachd.rpc.agent_manager_api import (
    MAX_ASKED,
    MAX_LINE,
    MAX_OBSERVED,
    MAX_PATHS,
    ObservedDevice,
    Renewal,
    Report,
    ReportToken,
)

MAX_DEVICES: Final = 4096
"""How many devices one host may report."""

_LINE: Final = {"maxLength": MAX_LINE, "pattern": r"\A[^\x00-\x1f\x7f]*\Z"}
_ID: Final = {"type": "string", "minLength": 1, **_LINE}
_SHORT: Final = {"type": "string", "maxLength": 32, "pattern": _LINE["pattern"]}

_CREDENTIALS: Final = {
    # It is a part of the names of queues: one host must not have the name of another's queue.  It
    # is a part of the account's rights too, which are regular expressions: no "+" is in it.
    "host": {
        "type": "string",
        "pattern": r"\A(?!.*(\.agent|_fanout(_[0-9a-f]{32})?)\Z)[A-Za-z0-9][A-Za-z0-9._:@-]*\Z",
        "maxLength": 200,
    },
    # It is drawn at random: a short one was not, and could be guessed.
    "key": {"type": "string", "minLength": 32, "maxLength": 255},
}
_CONNECTOR: Final = {
    "type": ["object", "null"],
    "properties": {"host": {"type": "string", "minLength": 1, **_LINE}},
    "required": ["host"],
}
_PATH: Final = {
    "type": "object",
    "properties": {"name": _SHORT, "state": {"enum": ["active", "failed"]}},
    "required": ["name", "state"],
    "additionalProperties": False,
}
_FOUND: Final = {
    "volume_id": _ID,
    "path": {"type": ["string", "null"], **_LINE},
    "size_bytes": {"type": ["integer", "null"], "minimum": 0},
    "mountpoint": {"type": ["string", "null"], "maxLength": 4096},
    "paths": {"type": "array", "items": _PATH, "maxItems": MAX_PATHS},
    "last_io_error": {"type": ["string", "null"], **_LINE},
}
_DEVICE: Final = {
    "type": "object",
    "properties": {
        **_FOUND,
        "attachment_id": _ID,
        "filesystem": {**_SHORT, "type": ["string", "null"]},
        "filesystem_bytes": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "growth": {"type": ["string", "null"], **_LINE},
    },
    "required": ["attachment_id", "volume_id", "path", "size_bytes"],
    "additionalProperties": False,
}
_OBSERVED: Final = {
    "type": ["object", "null"],
    "properties": {
        "devices": {
            "type": "array",
            "maxItems": MAX_OBSERVED,
            "items": {
                "type": "object",
                "properties": {
                    **_FOUND,
                    "attachment_id": {**_ID, "type": ["string", "null"]},
                    "target": _ID,
                },
                "required": sorted(ObservedDevice.__required_keys__),
                "additionalProperties": False,
            },
        },
        "asked": {"type": "array", "maxItems": MAX_ASKED, "items": _SHORT},
    },
    "required": ["devices", "asked"],
    "additionalProperties": False,
}
_TOKEN_ID: Final = {"type": "string", "minLength": 16, "maxLength": 64}
_TOKEN: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "process": _TOKEN_ID,
        "start": {"type": "integer", "minimum": 1, "maximum": 2**53},
        "number": {"type": "integer", "minimum": 1, "maximum": 2**53},
        "previous": {**_TOKEN_ID, "type": ["string", "null"]},
        "next": _TOKEN_ID,
        "is_repeated": {"type": "boolean"},
        "has_rival": {"type": "boolean"},
        "is_known": {"type": "boolean"},
    },
    "required": sorted(ReportToken.__required_keys__),
    "additionalProperties": False,
}
_REPORT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "connector": _CONNECTOR,
        "devices": {"type": "array", "maxItems": MAX_DEVICES, "items": _DEVICE},
        "connector_type": _SHORT,
        "version": _SHORT,
        "error": {"type": ["string", "null"]},
        "boot_id": {**_ID, "maxLength": 64},
        "stops_writers": {"type": "boolean"},
        "observed": _OBSERVED,
        "lease": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_LEASE},
        "machine_id": {"type": ["string", "null"], "minLength": 1, **_LINE, "maxLength": 64},
        "token": _TOKEN,
        "libvirt_secrets": {"type": "boolean"},
        "max_attachments": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_ATTACHMENTS},
    },
    "required": sorted(Report.__required_keys__),
    "additionalProperties": False,
}
_RENEWAL: Final = {
    "type": "object",
    "properties": {
        **{
            name: _REPORT["properties"][name]
            for name in ("boot_id", "lease", "machine_id", "token")
        },
        "content_number": _TOKEN["properties"]["number"],
        "desired": {"type": "string", "pattern": r"\A[0-9a-f]{64}\Z"},
    },
    "required": sorted(Renewal.__required_keys__),
    "additionalProperties": False,
}
_VALUES: Final = {
    "attachment_id": _ID,
    "generation": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "device": {"type": "string", "minLength": 1, **_LINE},
    "error": {"type": "string", "maxLength": 2**16},
    "process": _TOKEN_ID,
}


def check_host(host: object) -> None:
    """Check the name of a host; raise InvalidInput."""
    _check("host", host, _CREDENTIALS["host"])


def check_credentials(host: object, key: object) -> None:
    """Check a name and a key; raise InvalidInput, which does not repeat the key."""
    check_host(host)
    _check("key", key, _CREDENTIALS["key"], secret=True)


def check_report(report: Mapping[str, Any]) -> None:
    """Check a report.

    :param report: as agent_manager_api.Report
    :raises InvalidInput: it has a wrong form
    :raises TooLarge: its connector exceeds ``host_identity.MAX_CONNECTOR_SIZE``
    """
    _check("report", report, _REPORT, secret=True)
    if objects.find_reserved_key(report["connector"]):
        raise exception.InvalidInput(
            field="report.connector",
            value="(not shown)",
            reason=f"Keys must not begin with '{objects.RESERVED_PREFIX}'.",
        )
    size = len(json.dumps(report["connector"], separators=(",", ":")))
    if size > host_identity.MAX_CONNECTOR_SIZE:
        raise exception.TooLarge(what="The connector", limit=host_identity.MAX_CONNECTOR_SIZE)


def check_renewal(renewal: Mapping[str, Any]) -> None:
    """Check a report that nothing is new; raise InvalidInput.

    :param renewal: as agent_manager_api.Renewal
    """
    _check("renewal", renewal, _RENEWAL, secret=True)


def check_values(**values: object) -> None:
    """Check values about one attachment; raise InvalidInput.

    :param values: attachment_id, generation, device, error, as far as given
    """
    for name, value in values.items():
        _check(name, value, _VALUES[name])


def _check(name: str, value: object, schema: Mapping[str, Any], *, secret: bool = False) -> None:
    # The first error, not the best one: to find that takes seconds for thousands of errors.
    error = next(jsonschema.Draft202012Validator(schema).iter_errors(value), None)
    if error is None:
        return
    where = ".".join([name, *map(str, error.absolute_path)])
    raise exception.InvalidInput(
        field=where,
        value="(not shown)" if secret else value,
        reason=f"It has to fit {error.validator} {json.dumps(error.validator_value)}.",
    )
