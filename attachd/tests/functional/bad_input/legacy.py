# SPDX-License-Identifier: Apache-2.0
"""Bad requests for the volume actions that attach and detach."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import UNKNOWN, Row

READER = {"token": wsgi_api.READER}
ADMIN = {"token": wsgi_api.ADMIN}
SERVER = "11111111-1111-4111-8111-111111111111"
HOST = {"host": "compute-1"}
NO_TEXT: list[Any] = [None, 1, True, [], {}]
NAMES = {
    "reserve": "os-reserve",
    "unreserve": "os-unreserve",
    "begin": "os-begin_detaching",
    "roll": "os-roll_detaching",
    "connect": "os-initialize_connection",
    "disconnect": "os-terminate_connection",
    "attach": "os-attach",
    "detach": "os-detach",
    "force": "os-force_detach",
}
GOOD: dict[str, Any] = {
    "reserve": None,
    "unreserve": None,
    "begin": None,
    "roll": None,
    "connect": {"connector": HOST},
    "disconnect": {"connector": HOST},
    "attach": {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"},
    "detach": None,
    "force": {},
}
RULES = {
    "begin": "begin_detaching",
    "roll": "roll_detaching",
    "connect": "initialize_connection",
    "disconnect": "terminate_connection",
    "force": "force_detach",
}


def _row(
    claim: str,
    verb: str,
    body: Any,
    says: str,
    status: int = 400,
    volume: str = "{volume}",
    options: Any = None,
) -> Row:
    path = f"/volumes/{volume}/action"
    asked = options or (ADMIN if verb == "force" else {})
    return Row(f"{verb}: {claim}", "POST", path, {NAMES[verb]: body}, status, says, asked)


def _good(claim: str, verb: str, says: str, status: int, volume: str, options: Any = None) -> Row:
    return _row(claim, verb, GOOD[verb], says, status, volume, options)


def _attach(claim: str, says: str, **fields: Any) -> Row:
    body = {**GOOD["attach"], **fields}
    return _row(claim, "attach", {k: v for k, v in body.items() if v != "absent"}, says)


NO_CONNECTORS: list[Any] = [
    None,
    "x",
    [],
    {},
    {"connector": None},
    {"connector": "compute-1"},
    {"connector": []},
    {"connector": {}},
    {"connector": HOST, "more": 1},
]
NO_HOSTS: list[Any] = [None, "x", {}, {"connector": "compute-1"}, {"connector": 1}]
WRONG_ATTACHES: list[Any] = [None, "x", [], {}]
WRONG_DETACHES: list[Any] = ["x", [], 1, {"attachment_id": "x"}, {"attachment_id": 1}, {"more": 1}]
WRONG_FORCES: list[Any] = [None, "x", [], {"attachment_id": 1}, {"connector": "x"}, {"more": 1}]

ROWS = [
    *(_good("unknown", verb, "Volume {unknown}", 404, "{unknown}") for verb in NAMES),
    *(
        _good("another's", verb, "Volume {their_volume}", 404, "{their_volume}")
        for verb in NAMES
        if verb != "force"
    ),
    *(
        _good("a reader", verb, RULES.get(verb, verb), 403, "{volume}", READER)
        for verb in NAMES
    ),
    _good("a member", "force", "force_detach", 403, "{volume}", {"token": wsgi_api.MEMBER}),
    # What is in the way.
    _good("reserved", "reserve", "is reserved; .*attachment {reserved}", 400, "{reserved_volume}"),
    _good("attached", "reserve", "is in-use; .*attachment {attached}", 400, "{attached_volume}"),
    _good("broken", "reserve", "status is error", 400, "{broken_volume}"),
    _good("free", "begin", "must be in-use .* is available", 400, "{volume}"),
    _good("reserved", "begin", "must be in-use .* is reserved", 400, "{reserved_volume}"),
    _good("broken", "begin", "is error", 400, "{broken_volume}"),
    _good("reserved", "connect", "by attachment {reserved}", 400, "{reserved_volume}"),
    _good("attached", "connect", "by attachment {attached}", 400, "{attached_volume}"),
    _good("broken", "connect", "its status is error", 400, "{broken_volume}"),
    _good("reserved", "attach", "by attachment {reserved}", 400, "{reserved_volume}"),
    _good("attached", "attach", "by attachment {attached}", 400, "{attached_volume}"),
    _good("broken", "attach", "its status is error", 400, "{broken_volume}"),
    # Messages.
    *(_row(f"{str(body)!r}", "connect", body, "connector|not of type") for body in NO_CONNECTORS),
    _row("a connector without a host", "connect", {"connector": {"ip": "::1"}},
         "os-initialize_connection.connector|'host' is a required"),
    _row("a host of a number", "connect", {"connector": {"host": 1}}, "connector.host"),
    _row("a large connector", "connect", {"connector": {**HOST, "x": "y" * 70_000}},
         "connector is too large", 413),
    *(_row(f"{str(body)!r}", "disconnect", body, "connector|is not of type") for body in NO_HOSTS),
    *(_row(f"{str(body)!r}", "attach", body, "os-attach|required") for body in WRONG_ATTACHES),
    _attach("neither server nor host", "an instance_uuid or a host_name", instance_uuid="absent"),
    _attach("no mountpoint", "'mountpoint' is a required", mountpoint="absent"),
    _attach("an empty mountpoint", "os-attach.mountpoint", mountpoint=""),
    _attach("a long mountpoint", "os-attach.mountpoint", mountpoint="x" * 256),
    _attach("a long host_name", "os-attach.host_name", host_name="x" * 256),
    _attach("an unknown mode", "os-attach.mode", mode="rwx"),
    _attach("an unknown field", "'colour' was unexpected", colour="red"),
    *(_attach(f"a server of {each!r}", "os-attach.instance_uuid", instance_uuid=each)
      for each in [*NO_TEXT, "", "x", f"{SERVER}0"]),
    *(_attach(f"a mountpoint of {each!r}", "os-attach.mountpoint", mountpoint=each)
      for each in NO_TEXT),
    *(_row(f"{str(body)!r}", "detach", body, "os-detach") for body in WRONG_DETACHES),
    _row("another volume's", "detach", {"attachment_id": "{attached}"},
         "an attachment of volume {attached_volume}"),
    *(_row(f"{str(body)!r}", "force", body, "os-force_detach") for body in WRONG_FORCES),
    _row("nothing like that", "force", {"attachment_id": UNKNOWN}, UNKNOWN, 404),
    _row("another volume's", "force", {"attachment_id": "{attached}"},
         "an attachment of volume {attached_volume}"),
]  # fmt: skip
