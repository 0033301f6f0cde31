# SPDX-License-Identifier: Apache-2.0
"""Bad requests for volume types, their extra specs, access and encryption."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

URL = "/types"
ITEM = "/types/{type}"
SPECS = "/types/{type}/extra_specs"
ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}


def _create(claim: str, says: str, status: int = 400, **fields: Any) -> Row:
    body = {"volume_type": {"name": "new", **fields}}
    return Row(f"create: {claim}", "POST", URL, body, status, says, ADMIN)


def _public(value: Any) -> dict[str, Any]:
    return {"os-volume-type-access:is_public": value}


def _update(claim: str, says: str, fields: Any, status: int = 400, path: str = ITEM) -> Row:
    return Row(f"update: {claim}", "PUT", path, {"volume_type": fields}, status, says, ADMIN)


def _specs(claim: str, says: str, specs: Any, status: int = 400, path: str = SPECS) -> Row:
    return Row(f"specs: {claim}", "POST", path, {"extra_specs": specs}, status, says, ADMIN)


def _spec(claim: str, says: str, body: Any, status: int = 400) -> Row:
    return Row(f"spec: {claim}", "PUT", f"{SPECS}/k", body, status, says, ADMIN)


def _plain(claim: str, method: str, path: str, status: int, says: str, options: Any) -> Row:
    return Row(claim, method, path, None, status, says, options)


def _access(
    claim: str,
    says: str,
    project: Any,
    status: int = 400,
    action: str = "addProjectAccess",
    path: str = "/types/{private_type}",
) -> Row:
    return Row(
        f"access: {claim}", "POST", f"{path}/action", {action: project}, status, says, ADMIN
    )


def _encryption(
    claim: str, method: str, status: int, says: str, encryption: Any, key: str = ""
) -> Row:
    body = {"encryption": encryption}
    return Row(
        f"encryption: {claim}", method, f"{ITEM}/encryption{key}", body, status, says, ADMIN
    )


PROJECT = {"project": "p"}

_SHARING: list[Row] = [
    row
    for key, wrong, reason in (
        ("multiattach", ("True", "<is>", "<is> perhaps", "is True", "<is> <is> True", ""), "<is>"),
        ("capabilities:multiattach", ("yes", "<in> True"), "<is> True"),
        ("mode", ("W", "RO RW", "<is> RO", "", "read"), "RW, for hosts that all write, or RO"),
        ("max_attachments", ("0", "-1", "1.5", "many", "", "1000001", "9" * 30, "٣"), "a number"),
        ("max_attachments_per_host", ("0", "-1", "two", " 2", "2\n"), "a number, 1 to 1000000"),
    )
    for value in wrong
    for row in (
        _create(f"{key} of {value[:9]!r}", f"attribute {key}.*{reason}", extra_specs={key: value}),
        _specs(f"{key} of {value[:9]!r}", f"attribute {key}.*{reason}", {"a": "b", key: value}),
        Row(f"spec: {key} of {value[:9]!r}", "PUT", f"{SPECS}/{key}", {key: value}, 400,
            f"attribute {key}.*{reason}", ADMIN),
    )
]  # fmt: skip
"""Extra specs about attaching that have no valid value."""

ROWS = [
    Row("create: no type", "POST", URL, {"x": 1}, 400, "'volume_type' is a required|'x'", ADMIN),
    Row("create: null", "POST", URL, {"volume_type": None}, 400, "volume_type", ADMIN),
    Row("create: no name", "POST", URL, {"volume_type": {}}, 400, "'name' is a required", ADMIN),
    _create("a name of null", "volume_type.name", name=None),
    _create("an empty name", "volume_type.name", name=""),
    _create("a blank name", "volume_type.name", name="   "),
    _create("a name of a number", "volume_type.name", name=1),
    _create("a name of a novel", "volume_type.name", name="x" * 256),
    _create("a name that is taken", "Type used already exists", 409, name="used"),
    _create("a description of a number", "volume_type.description", description=1),
    _create("a description of a novel", "volume_type.description", description="x" * 256),
    _create("visibility of nonsense", "is_public", **_public("perhaps")),
    _create("visibility of null", "is_public", **_public(None)),
    _create("an unknown field", "'colour' was unexpected", colour="red"),
    _create("extra specs of text", "volume_type.extra_specs", extra_specs="a=b"),
    _create("an extra spec of a number", "extra_specs.a", extra_specs={"a": 1}),
    _create("a key with a blank", "extra_specs", extra_specs={"a b": "1"}),
    Row(
        "create: a member",
        "POST",
        URL,
        {"volume_type": {"name": "new"}},
        403,
        "volume_extension:type_create",
        MEMBER,
    ),
    _update("nothing", "Specify", {}),
    _update("only nulls", "Specify", {"name": None, "description": None}),
    _update("null", "volume_type", None),
    _update("an empty name", "volume_type.name", {"name": ""}),
    _update("a name that is taken", "Type used already exists", {"name": "used"}, 409),
    _update("extra specs", "'extra_specs' was unexpected", {"extra_specs": {}}),
    _update("unknown", "type {unknown} could not", {"name": "n"}, 404, "/types/{unknown}"),
    _plain("show: unknown", "GET", "/types/{unknown}", 404, "type {unknown} could not", MEMBER),
    _plain("show: no default", "GET", "/types/default", 404, "Default volume type", MEMBER),
    _plain("list: unknown filter", "GET", "/types?colour=red", 400, "colour", MEMBER),
    _plain("list: nonsense", "GET", "/types?is_public=perhaps", 400, "is_public", ADMIN),
    _plain("list: specs", "GET", "/types?extra_specs=a", 400, "attribute extra_specs", MEMBER),
    _plain("delete: unknown", "DELETE", "/types/{unknown}", 404, "type {unknown}", ADMIN),
    _plain("delete: in use", "DELETE", "/types/{used_type}", 400, "volumes present", ADMIN),
    _plain("delete: a member", "DELETE", ITEM, 403, "volume_extension:type_delete", MEMBER),
    Row("specs: nothing", "POST", SPECS, {}, 400, "'extra_specs' is a required", ADMIN),
    _specs("null", "extra_specs", None),
    _specs("a value of a number", "extra_specs.a", {"a": 1}),
    _specs("a value of a novel", "extra_specs.a", {"a": "x" * 256}),
    _specs("an empty key", "extra_specs", {"": "1"}),
    _specs("in use", "currently in use", {"a": "1"}, 400, "/types/{used_type}/extra_specs"),
    _specs("unknown", "type {unknown}", {"a": "1"}, 404, "/types/{unknown}/extra_specs"),
    _spec("nothing", "{}", {}),
    _spec("two", "k", {"k": "1", "l": "2"}),
    _spec("another key", "mismatch", {"l": "2"}),
    _spec("a value of a list", "k. Value: ", {"k": []}),
    _plain("spec: unknown", "GET", f"{SPECS}/zz", 404, "no extra specs with key zz", ADMIN),
    _plain("spec: not there", "DELETE", f"{SPECS}/zz", 404, "with key zz", ADMIN),
    _plain("spec: a member", "DELETE", f"{SPECS}/k", 403, "types_extra_specs:delete", MEMBER),
    _access("add: null", "project", {"project": None}),
    _access("add: nobody", "'project' is a required", {}),
    _access("add: an empty name", "project", {"project": ""}),
    _access("add: a blank name", "id of a project", {"project": " "}),
    _access("add: a novel", "longer than 64", {"project": "x" * 65}),
    _access("add: a list", "not of type", {"project": ["p"]}),
    _access("add: more", "'x' was unexpected", {"project": "p", "x": 1}),
    _access("add: text", "not of type", "p"),
    _access("add: everybody", "public volume type", PROJECT, path=ITEM),
    _access("add: unknown", "type {unknown}", PROJECT, 404, path="/types/{unknown}"),
    _access("remove: everybody", "public volume type", PROJECT, 400, "removeProjectAccess", ITEM),
    _access("remove: nobody's", "access not found", PROJECT, 404, "removeProjectAccess"),
    _plain("access: public", "GET", f"{ITEM}/os-volume-type-access", 404, "public", ADMIN),
    _plain("access: unknown", "GET", "/types/{unknown}/os-volume-type-access", 404, "type", ADMIN),
    _plain("access: private", "GET", "/types/{private_type}", 404, "could not be found", MEMBER),
    _plain("encryption: unknown", "GET", "/types/{unknown}/encryption", 404, "type", ADMIN),
    _plain("encryption: a field", "GET", f"{ITEM}/encryption/cipher", 404, "not exist", ADMIN),
    _plain("encryption: a member", "GET", f"{ITEM}/encryption", 403, "encryption:get", MEMBER),
    _plain("encryption: delete", "DELETE", f"{ITEM}/encryption/x", 404, "not exist", ADMIN),
    _encryption("create", "POST", 400, "no encrypted volumes", {"provider": "luks"}),
    _encryption("create: null", "POST", 400, "encryption", None),
    _encryption("update", "PUT", 404, "not exist", {"cipher": "x"}, "/x"),
    *_SHARING,
]
