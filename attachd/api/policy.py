# SPDX-License-Identifier: Apache-2.0
"""Who may do what: base rules, personas, and the one place where they are enforced.

Each noun's ``policy.py`` lists its ``RULES``, made with :func:`rule`.  Operators override them
in policy.yaml, which is read again within a second of a change.  A broken one is complained about,
and what held before it goes on to hold; at the start it is refused.
"""

from collections.abc import Hashable, Mapping, MutableMapping
import importlib
import inspect
import threading
import time
from typing import Any, NamedTuple

from oslo_log import log
from oslo_policy import _checks as oslo_checks  # a private name: see patch_oslo_policy_cache()
from oslo_policy import opts as oslo_opts
from oslo_policy import policy as oslo_policy

from attachd import exception
from attachd.api import endpoint, policy_files
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

oslo_opts.set_defaults(CONF)  # which registers them: policy_files needs them before an enforcer

ADMIN = "rule:admin_api"
MEMBER = "rule:admin_or_project_member"
READER = "rule:admin_or_project_reader"
SERVICE = "rule:service_api"
ANYBODY = "@"
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
    oslo_policy.RuleDefault(
        "service_api",
        "role:service or service_roles:service",
        description="Other services, for themselves or for a user: by token or service token.",
    ),
]

_LOOK_AGAIN = 1.0
"""Seconds between two looks at the policy files."""
_REMIND = 60.0
"""Seconds between two complaints about one broken file."""
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


def check_files() -> list[str]:
    """Let the policy files pass that are configured, if they have no mistake.

    :returns: the names of those rules in them that nothing asks for
    :raises ConfigurationError: naming the file and the mistake
    """
    return policy_files.check(
        policy_files.find(CONF), list_rules(), {*_CREDENTIALS, "system", "token"}
    )


def load() -> None:
    """Read the policy files now, not with the first request.

    :raises ConfigurationError: one is broken
    """
    _rules.in_force()


def get_enforcer() -> oslo_policy.Enforcer:
    """Return a new enforcer that knows all rules: for oslo.policy's tools, and for us."""
    enforcer = oslo_policy.Enforcer(CONF)
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(list_rules())
    return enforcer


class _Rules:
    """The rules in force in this process, read again when files change."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._due = 0.0
        self._remind = 0.0
        self._seen: policy_files.State | None = None
        self._broken = False
        self._in_force: oslo_policy.Enforcer | None = None

    def in_force(self) -> oslo_policy.Enforcer:
        """Return what holds now; nobody changes it any more.

        :raises ConfigurationError: there is nothing yet, and the policy files are broken
        """
        if self._in_force is None:
            with self._loading:
                return self._in_force or self._look()
        if time.monotonic() >= self._due and self._loading.acquire(blocking=False):
            try:
                return self._look()
            finally:
                self._loading.release()
        return self._in_force

    def _look(self) -> oslo_policy.Enforcer:
        """Read the files if they have changed; broken ones change nothing."""
        state = policy_files.state(CONF)
        now = time.monotonic()
        complain_again = self._broken and now >= self._remind
        if self._in_force is None or state != self._seen or complain_again:
            self._read()
        self._seen = state
        self._due = now + _LOOK_AGAIN
        assert self._in_force is not None
        return self._in_force

    def _read(self) -> None:
        try:
            check_files()
            enforcer = get_enforcer()
            enforcer.load_rules()
        except (exception.ConfigurationError, ValueError, OSError) as error:
            # The latter two: a file has changed once more in between.
            if self._in_force is None:
                raise
            said = "%s The rules from before stay in force: correct it."
            LOG.error(said, error)  # noqa: TRY400  it is no mistake of ours
            self._broken = True
            self._remind = time.monotonic() + _REMIND
            return
        if self._in_force is not None:
            LOG.info("The policy files have changed and are in force now.")
        self._in_force, self._broken = enforcer, False


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
    """Tell whether a rule allows the caller to act on the target.

    Within one request a rule is asked once for each target, unless the rules change meanwhile.
    """
    rules = _rules.in_force()
    memory: _Memory | None = context.policy_cache
    if memory is None or memory.rules is not rules:
        memory = context.policy_cache = _Memory(rules, _credentials(context), {})
    question = (name, *target.items())
    decision = memory.decisions.get(question)
    if decision is None:
        decision = _decide(rules, context, memory.credentials, name, target)
        memory.decisions[question] = decision
    return decision


class _Memory(NamedTuple):
    """What has been decided in one request."""

    rules: oslo_policy.Enforcer
    credentials: dict[str, Any]
    decisions: dict[Hashable, bool]


def _decide(
    rules: oslo_policy.Enforcer,
    context: RequestContext,
    credentials: dict[str, Any],
    name: str,
    target: Mapping[str, Any],
) -> bool:
    registered = rules.registered_rules[name]
    if registered.scope_types and _scope(context) not in registered.scope_types:
        return False
    return _check(rules.rules[name], target, credentials, rules, name)


def _credentials(context: RequestContext) -> dict[str, Any]:
    credentials = {key: getattr(context, key) for key in _CREDENTIALS}
    if context.system_scope:
        credentials["system"] = context.system_scope
    return credentials


def _scope(context: RequestContext) -> str:
    if context.system_scope:
        return "system"
    return "domain" if context.domain_id else "project"


def is_admin(context: RequestContext) -> bool:
    """Tell whether the caller sees the resources of all projects."""
    # Not remembered: the credentials that others are decided by have what is found here.
    rules = _rules.in_force()
    return _decide(rules, context, _credentials(context), "context_is_admin", {})


def patch_oslo_policy_cache() -> None:
    """Have oslo.policy look at the signature of a kind of check once, not at each decision.

    Where oslo.policy is not the one we know, it stays as it is.
    """
    known = getattr(oslo_checks, "_check", None)
    if known is not None and tuple(inspect.signature(known).parameters) == _KNOWN_ARGUMENTS:
        oslo_checks._check = _check  # noqa: SLF001


_KNOWN_ARGUMENTS = ("rule", "target", "creds", "enforcer", "current_rule")


_takes: dict[type, bool] = {}


def _takes_current_rule(kind: type[Any]) -> bool:
    arguments = inspect.getfullargspec(kind.__call__).args
    _takes[kind] = len(arguments) > 4  # noqa: PLR2004  self and _check()'s first 4
    return _takes[kind]


def _check(
    rule: Any,
    target: Mapping[str, Any],
    creds: MutableMapping[str, Any],
    enforcer: oslo_policy.Enforcer,
    current_rule: str | None,
) -> bool:
    """Do as oslo.policy's function of this name, which this one replaces."""
    takes = _takes.get(kind := type(rule))
    if takes is None:
        takes = _takes_current_rule(kind)
    if takes:
        return bool(rule(target, creds, enforcer, current_rule))
    return bool(rule(target, creds, enforcer))
