# SPDX-License-Identifier: Apache-2.0
"""Wrong requests to act on volumes."""

from typing import Any

from attachd.tests.functional import served
from attachd.tests.functional.bad_input import Row

ACTION = "/volumes/{volume}/action"
SIZES: list[Any] = [None, 0, -5, 1.5, True, "", "big", [], {}, 2**31, "9" * 30]
READER = {"token": served.READER}
ADMIN = {"token": served.ADMIN}


def _extend(claim: str, says: str, size: Any, status: int = 400, volume: str = "{volume}") -> Row:
    body = {"os-extend": {"new_size": size}}
    return Row(f"extend: {claim}", "POST", f"/volumes/{volume}/action", body, status, says)


def _reset(claim: str, says: str, body: Any, options: Any = None, status: int = 400) -> Row:
    sent = {"os-reset_status": body}
    return Row(f"reset: {claim}", "POST", ACTION, sent, status, says, options or ADMIN)


ROWS = [
    Row("nothing", "POST", ACTION, {}, 400, "one key"),
    Row("two", "POST", ACTION, {"os-extend": {}, "os-reset_status": {}}, 400, "one key"),
    Row("unknown", "POST", ACTION, {"os-fly": None}, 400, "no such action: os-fly"),
    Row("extend: null", "POST", ACTION, {"os-extend": None}, 400, "os-extend"),
    Row("extend: nothing", "POST", ACTION, {"os-extend": {}}, 400, "'new_size' is a required"),
    Row(
        "extend: something beside it",
        "POST",
        ACTION,
        {"os-extend": {"new_size": 2, "unit": "TiB"}},
        400,
        "'unit' was unexpected",
    ),
    *(_extend(f"a size of {str(size)[:20]!r}", "os-extend.new_size", size) for size in SIZES),
    _extend("the same size", "greater than current size", 1),
    _extend("unknown", "Volume {unknown}", 2, 404, "{unknown}"),
    _extend("another's", "Volume {their_volume}", 2, 404, "{their_volume}"),
    _extend("broken", "currently error", 2, 400, "{broken_volume}"),
    Row(
        "extend: in use before 3.42",
        "POST",
        "/volumes/{attached_volume}/action",
        {"os-extend": {"new_size": 2}},
        400,
        "must be available to extend, currently in-use",
        {"version": "volume 3.41"},
    ),
    Row(
        "extend: a reader",
        "POST",
        ACTION,
        {"os-extend": {"new_size": 2}},
        403,
        "volume:extend",
        READER,
    ),
    _reset("null", "os-reset_status", None),
    _reset("nothing", "os-reset_status. Value: {}", {}),
    _reset("only nulls", "Must specify", {"status": None, "attach_status": None}),
    _reset("an unknown field", "'colour' was unexpected", {"colour": "red"}),
    _reset("a status of a number", "os-reset_status.status", {"status": 1}),
    _reset("an unknown status", "os-reset_status.status", {"status": "happy"}),
    _reset("deleting", "os-reset_status.status", {"status": "deleting"}),
    _reset("error_deleting", "os-reset_status.status", {"status": "error_deleting"}),
    _reset("detaching", "os-reset_status.status", {"status": "detaching"}),
    _reset("in use without an attachment", "no attachment", {"status": "in-use"}),
    _reset("an unknown attach_status", "attach_status", {"attach_status": "reserved"}),
    _reset("a migration", "migration_status", {"migration_status": "migrating"}),
    _reset(
        "a member",
        "volume_admin_actions:reset_status",
        {"status": "error"},
        {"token": served.MEMBER},
        403,
    ),
]
