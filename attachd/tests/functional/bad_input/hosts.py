# SPDX-License-Identifier: Apache-2.0
"""Bad requests for hosts, clusters and clean-up."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER}
BEFORE_FILTERS = {"token": wsgi_api.ADMIN, "version": "volume 3.25"}
CLEANUP = "/workers/cleanup"


def _get(claim: str, path: str, status: int, says: str, options: Any = None) -> Row:
    return Row(claim, "GET", path, None, status, says, options or ADMIN)


def _cluster(claim: str, says: str, body: Any, status: int = 400, verb: str = "disable") -> Row:
    path = f"/clusters/{verb}"
    return Row(f"{verb} cluster: {claim}", "PUT", path, body, status, says, ADMIN)


def _cleanup(claim: str, says: str, **body: Any) -> Row:
    return Row(f"cleanup: {claim}", "POST", CLEANUP, body, 400, says, ADMIN)


ROWS = [
    _get("hosts: a member", "/os-hosts", 403, "volume_extension:hosts", MEMBER),
    _get("host: unknown", "/os-hosts/nowhere", 404, "Host nowhere could not be found"),
    Row("host: changed", "PUT", "/os-hosts/here@fake", None, 400, "os-services/disable", ADMIN),
    Row("host: unknown", "PUT", "/os-hosts/nowhere", None, 404, "nowhere", ADMIN),
    _get("clusters: a member", "/clusters", 403, "clusters:get_all", MEMBER),
    _get("clusters: a filter", "/clusters?colour=red", 400, "filter keys: colour"),
    _get("clusters: too early", "/clusters?frozen=1", 400, "frozen", BEFORE_FILTERS),
    _get("clusters: nonsense", "/clusters/detail?is_up=x", 400, "attribute is_up"),
    _get("cluster: a member", "/clusters/east", 403, "clusters:get", MEMBER),
    _get("cluster: unknown", "/clusters/east", 404, "Cluster east could not be found"),
    _cluster("no name", "'name' is a required", {}),
    _cluster("a name of blanks", "attribute name", {"name": " "}),
    _cluster("a binary of a number", "attribute binary", {"name": "n", "binary": 1}),
    _cluster("a reason of a novel", "reason", {"name": "n", "disabled_reason": "x" * 256}),
    _cluster("unknown", "Cluster n could not be found", {"name": "n"}, 404),
    _cluster("unknown", "Cluster n could not be found", {"name": "n"}, 404, "enable"),
    _cluster("a reason", "'disabled_reason' was", {"name": "n", "disabled_reason": "r"}, 400,
             "enable"),
    Row("cleanup: a member", "POST", CLEANUP, {}, 403, "workers:cleanup", MEMBER),
    _cleanup("an unknown field", "'x' was", x=1),
    _cleanup("a program of nova", "attribute binary", binary="nova-api"),
    _cleanup("neither up nor down", "attribute is_up", is_up="perhaps"),
    _cleanup("neither nor", "attribute disabled", disabled=[]),
    _cleanup("no UUID", "attribute resource_id", resource_id="x"),
    _cleanup("an unknown volume", "no resource with UUID {unknown}", resource_id="{unknown}"),
    _cleanup("an unknown type", "attribute resource_type", resource_type="Server"),
    _cleanup("a number below zero", "attribute service_id", service_id=-1),
    _cleanup("no host", "attribute host", host=None),
]  # fmt: skip
