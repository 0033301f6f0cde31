# SPDX-License-Identifier: Apache-2.0
"""Who may do what: base rules, personas, and the one place where they are enforced.

Each noun's ``policy.py`` lists its ``RULES``, made with :func:`rule`.  Operators override them
in policy.yaml, which is read again within a second of a change.
"""

from collections.abc import Mapping, MutableMapping
import copy
import importlib
import inspect
import threading
import time
from typing import Any

from oslo_policy import _checks as oslo_checks  # a private name: see recall_signatures()
from oslo_policy import policy as oslo_policy

from attachd import exception
from attachd.api import endpoint
from attachd.conf import CONF
from attachd.context import RequestContext

ADMIN = "rule:admin_api"
MEMBER = "rule:admin_or_project_member"
READER = "rule:admin_or_project_reader"
"""Personas: the check strings of nearly all rules."""

BASE_RULES = [
    oslo_policy.RuleDefault(
        "context_is_admin",
        "role:admin",
        description="Who is an administrator, and so sees the resources of all projects.",
    ),
    oslo_policy.RuleDefault(
        "admin_api",
        "rule:context_is_admin",
        description="Administrators.",
    ),
    oslo_policy.RuleDefault(
        "admin_or_project_member",
        "rule:context_is_admin or (role:member and project_id:%(project_id)s)",
        description="Administrators, and whoever may use the project's resources.",
    ),
    oslo_policy.RuleDefault(
        "admin_or_project_reader",
        "rule:context_is_admin or (role:reader and project_id:%(project_id)s)",
        description="Administrators, and whoever may look at the project's resources.",
    ),
]

_LOOK_AGAIN = 1.0
"""Seconds between two looks at the policy files."""
_CREDENTIALS = (
    "user_id", "project_id", "roles", "is_admin", "is_admin_project", "system_scope", "domain_id",
    "user_domain_id", "project_domain_id", "service_user_id", "service_project_id",
    "service_roles",
)  # fmt: skip


def rule(
    name: str, check: str, description: str, *operations: str
) -> oslo_policy.DocumentedRuleDefault:
    """Make the default of one rule.

    :param operations: the endpoints that it decides on, as "POST /attachments" or
        "POST /attachments/{attachment_id}/action (os-complete)"
    """
    pairs = (operation.split(" ", 1) for operation in operations)
    return oslo_policy.DocumentedRuleDefault(
        name=name,
        check_str=check,
        description=description,
        operations=[
            {"method": method, "path": f"/v3/{{project_id}}{path}"} for method, path in pairs
        ],
        scope_types=["project"],
    )


def list_rules() -> list[oslo_policy.RuleDefault]:
    """Return all rules: for the enforcer, and for the generator of samples."""
    found = list(BASE_RULES)
    for noun in endpoint.NOUNS:
        found += importlib.import_module(f"attachd.api.{noun}.policy").RULES
    return found


def get_enforcer() -> oslo_policy.Enforcer:
    """Return a new enforcer that knows all rules: for oslo.policy's tools, and for us once."""
    enforcer = oslo_policy.Enforcer(CONF)
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(list_rules())
    return enforcer


class _Rules:
    """The rules in force in this process, read again when files change."""

    def __init__(self) -> None:
        self._enforcer: oslo_policy.Enforcer | None = None
        self._loading = threading.Lock()
        self._due = 0.0
        self._in_force: oslo_policy.Enforcer | None = None

    def in_force(self) -> oslo_policy.Enforcer:
        """Return what holds now; nobody changes it any more."""
        if self._in_force is None:
            with self._loading:
                return self._in_force or self._load()
        if time.monotonic() >= self._due and self._loading.acquire(blocking=False):
            try:
                return self._load()
            finally:
                self._loading.release()
        return self._in_force

    def _load(self) -> oslo_policy.Enforcer:
        if self._enforcer is None:
            self._enforcer = get_enforcer()
        self._enforcer.load_rules()
        # Reading a file empties the enforcer's rules before it fills them: whoever decides in
        # that moment has to have others.
        self._in_force = copy.copy(self._enforcer)
        self._in_force.rules = copy.copy(self._enforcer.rules)
        self._due = time.monotonic() + _LOOK_AGAIN
        return self._in_force


_rules = _Rules()


def forget() -> None:
    """Read everything anew with the next request; for tests that change the configuration."""
    global _rules  # noqa: PLW0603  one set of rules per process is the point
    _rules = _Rules()


def authorize(context: RequestContext, name: str, target: Mapping[str, Any]) -> None:
    """Let the caller go on only if the rule allows them to act on the target.

    This is what oslo.policy's Enforcer.authorize() decides, without a look at the files and
    without preparing a log message for each decision.

    :raises Forbidden: naming the rule
    """
    if not allows(context, name, target):
        raise exception.Forbidden(action=name)


def allows(context: RequestContext, name: str, target: Mapping[str, Any]) -> bool:
    """Tell whether a rule allows the caller to act on the target."""
    rules = _rules.in_force()
    registered = rules.registered_rules[name]
    credentials = {key: getattr(context, key) for key in _CREDENTIALS}
    if registered.scope_types and _scope(context) not in registered.scope_types:
        return False
    if context.system_scope:
        credentials["system"] = context.system_scope
    return _check(rules.rules[name], target, credentials, rules, name)


def _scope(context: RequestContext) -> str:
    if context.system_scope:
        return "system"
    return "domain" if context.domain_id else "project"


def is_admin(context: RequestContext) -> bool:
    """Tell whether the caller sees the resources of all projects."""
    return allows(context, "context_is_admin", {})


def recall_signatures() -> None:
    """Have oslo.policy look at the signature of a kind of check once, not at each decision.

    Where oslo.policy is not the one we know, it stays as it is.
    """
    known = getattr(oslo_checks, "_check", None)
    if known is not None and tuple(inspect.signature(known).parameters) == _KNOWN_ARGUMENTS:
        oslo_checks._check = _check  # noqa: SLF001


_KNOWN_ARGUMENTS = ("rule", "target", "creds", "enforcer", "current_rule")


_takes: dict[type, bool] = {}


def _takes_current_rule(kind: type[Any]) -> bool:
    known = _takes.get(kind)
    if known is None:
        arguments = inspect.getfullargspec(kind.__call__).args
        known = _takes[kind] = len(arguments) > 4  # noqa: PLR2004  self and _check()'s first 4
    return known


def _check(
    rule: Any,
    target: Mapping[str, Any],
    creds: MutableMapping[str, Any],
    enforcer: oslo_policy.Enforcer,
    current_rule: str | None,
) -> bool:
    """Do as oslo.policy's function of this name, which this one replaces."""
    arguments = (target, creds, enforcer)
    if _takes_current_rule(type(rule)):
        return bool(rule(*arguments, current_rule))
    return bool(rule(*arguments))
