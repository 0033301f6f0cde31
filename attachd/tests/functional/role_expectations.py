# SPDX-License-Identifier: Apache-2.0
"""The roles that each policy rule is expected to allow, for test_role_access.

A rule with one of the default checks in BY_CHECK needs no entry here.  Other rules need one in
BY_RULE.
"""

from collections.abc import Mapping
from typing import Any, Final

from attachd.api import policy_rules
from attachd.tests.fixtures import db_rows, wsgi_api

OTHER_PROJECT: Final = "b" * 32

TOKENS_BY_ROLE: Final[Mapping[str, str]] = {
    "admin": f"root:{wsgi_api.PROJECT}:admin,member,reader",
    "member": f"alice:{wsgi_api.PROJECT}:member,reader",
    "reader": f"rita:{wsgi_api.PROJECT}:reader",
    "service": f"nova:{wsgi_api.PROJECT}:service",
    "no_role": f"norman:{wsgi_api.PROJECT}:",
}
"""Tokens of users of the project that owns the resources, by role."""

OTHER_PROJECT_MEMBER: Final = f"mallory:{OTHER_PROJECT}:member,reader"
"""The token of a member of another project."""

BY_CHECK: Final[Mapping[str, frozenset[str]]] = {
    policy_rules.ADMIN: frozenset({"admin"}),
    policy_rules.MEMBER: frozenset({"admin", "member"}),
    policy_rules.READER: frozenset({"admin", "member", "reader"}),
    policy_rules.SERVICE: frozenset({"service"}),
    f"{policy_rules.MEMBER} or {policy_rules.SERVICE}": frozenset({"admin", "member", "service"}),
    f"{policy_rules.ADMIN} or {policy_rules.SERVICE}": frozenset({"admin", "service"}),
    policy_rules.ALLOW_ALL: frozenset(TOKENS_BY_ROLE),
}
"""Roles that the default of a rule permits in the own project."""

BY_RULE: Final[Mapping[str, frozenset[str]]] = {
    "context_is_admin": frozenset({"admin"}),
    "admin_api": frozenset({"admin"}),
    "admin_or_project_member": frozenset({"admin", "member"}),
    "admin_or_project_reader": frozenset({"admin", "member", "reader"}),
    "service_api": frozenset({"service"}),
}
"""The same for single rules, which comes first."""

BODIES: Final[Mapping[str, Any]] = {
    "os-attach": {"mountpoint": "/dev/vdb", "host_name": "compute-1"},
    "os-initialize_connection": {"connector": db_rows.CONNECTOR},
    "os-terminate_connection": {"connector": db_rows.CONNECTOR},
    "os-volume_upload_image": {"image_name": "disk"},
    "os-reimage": {"image_id": "11111111-2222-4333-8444-555555555555"},
}
"""Bodies of actions that no sample calls and that require a body."""

ATTACH_ON_HOST: Final = "admin"
"""Who is the least that may attach on a host by its name: that asks more than one rule."""

IN_ALL_PROJECTS: Final = frozenset({"admin", "service"})
"""Roles that apply to resources of all projects, where they are allowed."""


def allowed_roles(rule: str) -> frozenset[str]:
    """Return the roles of TOKENS_BY_ROLE that a rule is expected to allow.

    :raises KeyError: no expectation is written down
    """
    if rule in BY_RULE:
        return BY_RULE[rule]
    (check,) = (item.check_str for item in policy_rules.list_rules() if item.name == rule)
    return BY_CHECK[check]
