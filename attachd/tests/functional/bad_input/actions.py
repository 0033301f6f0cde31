# SPDX-License-Identifier: Apache-2.0
"""Bad requests for volume actions."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

ACTION = "/volumes/{volume}/action"
SIZES: list[Any] = [None, 0, -5, 1.5, True, "", "big", [], {}, 2**31, "9" * 30]
READER = {"token": wsgi_api.READER}
ADMIN = {"token": wsgi_api.ADMIN}


def _extend(claim: str, says: str, size: Any, status: int = 400, volume: str = "{volume}") -> Row:
    body = {"os-extend": {"new_size": size}}
    return Row(f"extend: {claim}", "POST", f"/volumes/{volume}/action", body, status, says)


def _reset(claim: str, says: str, body: Any, options: Any = None, status: int = 400) -> Row:
    sent = {"os-reset_status": body}
    return Row(f"reset: {claim}", "POST", ACTION, sent, status, says, options or ADMIN)


def _act(
    name: str, claim: str, says: str, body: Any, status: int = 400, options: Any = None
) -> Row:
    sent = {f"os-{name}": body}
    return Row(f"{name}: {claim}", "POST", ACTION, sent, status, says, options or {})


def _on(row: Row, volume: str) -> Row:
    """Send it to another volume."""
    return row._replace(path=f"/volumes/{volume}/action")


NO_BODIES: list[Any] = [None, {}, [], "x"]
NO_METADATA: list[Any] = [{"metadata": None}, {"metadata": []}]
NO_KEYS: list[Any] = [None, "", 1, [], "k" * 256]
NO_TRUTHS: list[Any] = [None, "", "maybe", 2, [], {}]

_IMAGE: list[Row] = [
    *(_act("set_image_metadata", f"a body of {body}", "os-set_image_metadata", body)
      for body in (*NO_BODIES, *NO_METADATA)),
    *(_act("set_image_metadata", claim, "os-set_image_metadata.metadata", {"metadata": pairs})
      for claim, pairs in (
          ("no key", {"": "v"}), ("a strange key", {"schlüssel": "v"}), ("a number", {"k": 1}),
          ("null", {"k": None}), ("a key too long", {"k" * 256: "v"}),
          ("a value too long", {"k": "v" * 65536}),
          ("too many", {f"k{number}": "v" for number in range(257)}))),
    _act("set_image_metadata", "something beside it", "'colour' was unexpected",
         {"metadata": {}, "colour": "red"}),
    *(_act("unset_image_metadata", f"a key of {str(key)[:9]!r}", "os-unset_image_metadata.key",
           {"key": key}) for key in NO_KEYS),
    _act("unset_image_metadata", "nothing", "'key' is a required", {}),
    _act("unset_image_metadata", "an unknown key", "no image metadata with key k",
         {"key": "k"}, 404),
    *(_on(_act(name, "another's", "Volume {their_volume}", body, 404), "{their_volume}")
      for name, body in (("set_image_metadata", {"metadata": {"k": "v"}}),
                         ("unset_image_metadata", {"key": "k"}),
                         ("show_image_metadata", None))),
    _act("set_image_metadata", "a reader", "volume_image_metadata:set",
         {"metadata": {"k": "v"}}, 403, READER),
    _act("unset_image_metadata", "a reader", "volume_image_metadata:remove",
         {"key": "k"}, 403, READER),
]  # fmt: skip

_FLAGS: list[Row] = [
    *(_act(name, f"{key} of {str(value)[:9]!r}", f"os-{name}.{key}", {key: value})
      for name, key in (("set_bootable", "bootable"), ("update_readonly_flag", "readonly"))
      for value in NO_TRUTHS),
    *(_act(name, f"a body of {body}", f"os-{name}|required", body)
      for name in ("set_bootable", "update_readonly_flag") for body in NO_BODIES),
    _act("set_bootable", "something beside it", "'x' was unexpected",
         {"bootable": True, "x": 1}),
    _act("update_readonly_flag", "something beside it", "'x' was unexpected",
         {"readonly": True, "x": 1}),
    _act("set_bootable", "a reader", "volume:update", {"bootable": True}, 403, READER),
    _act("update_readonly_flag", "a reader", "volume:update_readonly_flag", {"readonly": True},
         403, READER),
    _on(_act("update_readonly_flag", "in use", "must be available.* in-use",
             {"readonly": True}), "{attached_volume}"),
    _on(_act("update_readonly_flag", "broken", "must be available.* error",
             {"readonly": True}), "{broken_volume}"),
    _on(_act("update_readonly_flag", "another's", "Volume {their_volume}",
             {"readonly": True}, 404), "{their_volume}"),
    _on(_act("set_bootable", "unknown", "Volume {unknown}", {"bootable": True}, 404),
        "{unknown}"),
]  # fmt: skip

NO_TYPES: list[Any] = [None, "", 1, [], "t" * 256]
NO_POLICIES: list[Any] = ["always", "", 1, {}]
NO_ERRORS: list[Any] = [1, [], {}]

_TYPES: list[Row] = [
    *(_act("retype", f"a body of {body}", "os-retype|required", body) for body in NO_BODIES),
    *(_act("retype", f"a type of {str(kind)[:9]!r}", "os-retype.new_type", {"new_type": kind})
      for kind in NO_TYPES),
    *(_act("retype", f"a policy of {policy!r}", "os-retype.migration_policy",
           {"new_type": "used", "migration_policy": policy}) for policy in NO_POLICIES),
    _act("retype", "something beside it", "'x' was unexpected", {"new_type": "used", "x": 1}),
    _act("retype", "the same type", "has that type already", {"new_type": "used"}),
    _act("retype", "an unknown type", "silver could not be found", {"new_type": "silver"}, 404),
    _act("retype", "a reader", "volume:retype", {"new_type": "used"}, 403, READER),
    _on(_act("retype", "broken", "status.* is error|currently error", {"new_type": "used"}),
        "{broken_volume}"),
    _on(_act("retype", "another's", "Volume {their_volume}", {"new_type": "used"}, 404),
        "{their_volume}"),
]  # fmt: skip

_BY_ADMINISTRATORS: list[Row] = [
    _on(_act("force_delete", "attached", "is attached", {}, 400, ADMIN), "{attached_volume}"),
    _on(_act("force_delete", "unknown", "Volume {unknown}", {}, 404, ADMIN), "{unknown}"),
    *(_act("extend_volume_completion", f"an error of {error}",
           "os-extend_volume_completion.error", {"error": error}, 400, ADMIN)
      for error in NO_ERRORS),
    *(_act("extend_volume_completion", f"a body of {body!r}", "os-extend_volume_completion",
           body, 400, ADMIN) for body in NO_BODIES if body != {}),
    _act("extend_volume_completion", "not growing", "not being extended", {}, 400, ADMIN),
    *(_act(name, "a member", f"Policy doesn't allow .*:{rule}", {}, 403)
      for name, rule in (("force_delete", "force_delete"),
                         ("extend_volume_completion", "extend_volume_completion"),
                         ("migrate_volume", "migrate_volume"),
                         ("migrate_volume_completion", "migrate_volume_completion"),
                         ("unmanage", "volume_unmanage"))),
]  # fmt: skip

ELSEWHERE = ("migrate_volume", "migrate_volume_completion", "unmanage", "volume_upload_image",
             "reimage")  # fmt: skip
_ELSEWHERE: list[Row] = [
    *(_act(name, f"a body of {str(body)[:9]}", f"os-{name} is not supported", body, 400, ADMIN)
      for name in ELSEWHERE for body in NO_BODIES),
    *(_on(_act(name, "unknown", "Volume {unknown}", {}, 404, ADMIN), "{unknown}")
      for name in ELSEWHERE),
    Row("revert", "POST", ACTION, {"revert": None}, 400, "revert is not supported"),
]  # fmt: skip

ROWS = [
    *_TYPES,
    *_BY_ADMINISTRATORS,
    *_ELSEWHERE,
    *_IMAGE,
    *_FLAGS,
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
        {"token": wsgi_api.MEMBER},
        403,
    ),
]
