# SPDX-License-Identifier: Apache-2.0
"""What is done about a host whose agent is silent: extra specs of a type, options of a backend.

``on_lost_agent``, ``nothing`` (the default), ``mark`` or ``fence``
    Mark the host as lost; or fence it, so that its volumes can be attached elsewhere.
``lost_agent_timeout``, a number
    After how many seconds without a heartbeat.

The extra specs of a volume's type win over the options of its backend, each for itself.
"""

from collections.abc import Iterable, Mapping
import enum
import re
from typing import Any, Final, NamedTuple

from attachd import exception
from attachd.conf.manager import DEFAULT_LEASE, MAX_LEASE, MIN_LEASE

Specs = Mapping[str, str | None]

FIELDS: Final = ("on_lost_agent", "lost_agent_timeout")
"""The extra specs that this module reads, and the options of a backend."""
KEYS: Final = frozenset(FIELDS)
ON_LOST_AGENT, LOST_AGENT_TIMEOUT = FIELDS

STOP_AFTER: Final = 2 / 3
"""The share of a lease after which an agent that could not renew it stops writers.

The rest is the safety margin: for the work of stopping them, and for clocks of different rates.
"""

HEARTBEATS_PER_LEASE: Final = 6
"""How many times an agent renews its lease in the time that it lasts."""

_NUMBER: Final = re.compile(r"[0-9]{1,6}")


class Action(enum.StrEnum):
    """What is done about a host whose agent is silent."""

    NOTHING = "nothing"
    MARK = "mark"
    FENCE = "fence"


class Rule(NamedTuple):
    """What is done about a host whose agent is silent, and after how many seconds."""

    action: Action = Action.NOTHING
    timeout: int = DEFAULT_LEASE


NO_RULE: Final = Rule()
"""Nothing is done."""


def parse(specs: Specs, backend: Mapping[str, Any] | None) -> Rule:
    """Return the rule of a volume.

    :param specs: extra specs of its type; what :func:`check` refuses, stored before there was this
        check, is ignored
    :param backend: the options of its backend, as it reports them; None: it reports none
    """
    values = {**(backend or {}), **{key: specs[key] for key in KEYS if _is_valid(key, specs)}}
    return Rule(
        Action(values.get(ON_LOST_AGENT) or Action.NOTHING),
        int(values.get(LOST_AGENT_TIMEOUT) or DEFAULT_LEASE),
    )


def _is_valid(key: str, specs: Specs) -> bool:
    value = specs.get(key)
    if value is None:
        return False
    return value in set(Action) if key == ON_LOST_AGENT else _is_timeout(value)


def get_timeout(rules: Iterable[Rule], action: Action) -> int | None:
    """Return the shortest time after which one of these rules asks for an action; None: none."""
    return min((rule.timeout for rule in rules if rule.action is action), default=None)


def check(specs: Specs, name: str = "extra_specs") -> None:
    """Validate extra specs.

    :param name: of the field that contains them
    :raises InvalidInput: a value has no meaning
    """
    action, timeout = specs.get(ON_LOST_AGENT), specs.get(LOST_AGENT_TIMEOUT)
    if action is not None and action not in set(Action):
        raise exception.InvalidInput(
            field=f"{name}.{ON_LOST_AGENT}",
            value=repr(action),
            reason=f"It has to be one of {', '.join(Action)}.",
        )
    if timeout is not None and not _is_timeout(timeout):
        raise exception.InvalidInput(
            field=f"{name}.{LOST_AGENT_TIMEOUT}",
            value=repr(timeout),
            reason=f"It has to be a number of seconds, {MIN_LEASE} to {MAX_LEASE}.",
        )


def _is_timeout(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and MIN_LEASE <= int(text) <= MAX_LEASE
