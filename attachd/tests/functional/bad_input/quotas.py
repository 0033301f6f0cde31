# SPDX-License-Identifier: Apache-2.0
"""Bad requests for quotas."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}
SET = f"/os-quota-sets/{wsgi_api.PROJECT}"
CLASS = "/os-quota-class-sets/default"


def _set(claim: str, says: str, quotas: Any, query: str = "") -> Row:
    body = {"quota_set": quotas}
    return Row(f"set: {claim}", "PUT", f"{SET}{query}", body, 400, says, ADMIN)


def _class(claim: str, says: str, quotas: Any) -> Row:
    body = {"quota_class_set": quotas}
    return Row(f"class: {claim}", "PUT", CLASS, body, 400, says, ADMIN)


ROWS = [
    _set("nothing", "non-empty|enough properties|at least", {}),
    _set("null", "attribute quota_set", None),
    _set("a list", "attribute quota_set", []),
    _set("unknown", r"Bad key\(s\) in quota set: 'cores'", {"cores": 1}),
    _set("a type that is not there", "'volumes_nonesuch'", {"volumes_nonesuch": 1}),
    _set("an empty name", "Bad key", {"": 1}),
    _set("less than no limit", "quota_set.volumes", {"volumes": -2}),
    _set("a fraction", "quota_set.volumes", {"volumes": 1.5}),
    _set("text", "a whole number, or -1", {"volumes": "many"}),
    _set("no number", "quota_set.volumes", {"volumes": None}),
    _set("a truth", "quota_set.volumes", {"volumes": True}),
    _set("more than there are numbers", "quota_set.volumes", {"volumes": 2**31}),
    _set("more digits than a number has", "quota_set.volumes", {"volumes": "9" * 30}),
    _set("force of nonsense", "quota_set.force", {"volumes": 1, "force": "perhaps"}),
    _set("nonsense to be skipped", "skip_validation", {"volumes": 1}, "?skip_validation=perhaps"),
    _set("below what is used", "quota for volumes cannot be 0", {"volumes": 0}),
    Row(
        "set: a project with too long an id",
        "PUT",
        f"/os-quota-sets/{'x' * 65}",
        {"quota_set": {"volumes": 1}},
        400,
        "project_id.* at most 64 characters",
        ADMIN,
    ),
    Row("set: a member", "PUT", SET, {"quota_set": {"volumes": 1}}, 403, "quotas:update", MEMBER),
    Row("delete: a member", "DELETE", SET, None, 403, "quotas:delete", MEMBER),
    Row("show: nonsense", "GET", f"{SET}?usage=perhaps", None, 400, "usage", MEMBER),
    Row("show: theirs", "GET", f"/os-quota-sets/{'b' * 32}", None, 403, "quotas:show", MEMBER),
    Row(
        "defaults: theirs",
        "GET",
        f"/os-quota-sets/{'b' * 32}/defaults",
        None,
        403,
        "quotas:show",
        MEMBER,
    ),
    _class("null", "quota_class_set", None),
    _class("unknown", "Bad key.* 'cores'", {"cores": 1}),
    _class("less than no limit", "quota_class_set.volumes", {"volumes": -2}),
    _class("text", "quota_class_set.volumes", {"volumes": "x"}),
    _class("an id", "quota_class_set.id", {"id": "default"}),
    Row("class: a member", "GET", CLASS, None, 403, "quota_classes:get", MEMBER),
]
