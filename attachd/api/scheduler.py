# SPDX-License-Identifier: Apache-2.0
"""Scheduler: select the pool of a new volume by the last reports; used by the API.

Each pool of a backend is a candidate; most backends are one pool.

An impossible request is refused at once, with the reason.  Filters are applied one by one - up,
zone, capabilities, capacity - and the first that no backend passes gives the reason.  All callers
may read it: capabilities by name, but no hosts, and not the values of a type's extra specs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
import math
import operator
import random
from types import MappingProxyType
from typing import Any, Final

from oslo_log import log
from oslo_utils import strutils

from attachd import exception, lost_agents, multiattach
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.db.row_types import ServiceRow
from attachd.db.volumes import volume_queries

LOG = log.getLogger(__name__)

ZONES_SPEC: Final = "RESKEY:availability_zones"
"""The extra spec that lists the zones of a type's volumes, separated by commas."""

_UP: Final = "up"
_SCOPE: Final = "capabilities:"
_TRUE: Final = "<is> True"


@dataclass(frozen=True)
class RequestSpec:
    """Requirements of a volume.

    :ivar size_gib: GiB of the new volume
    :ivar extra_specs: of its type; keys of other scopes than ``capabilities:`` are ignored
    :ivar availability_zone: None: any
    """

    size_gib: int
    extra_specs: Mapping[str, str | None]
    availability_zone: str | None = None


@dataclass(frozen=True)
class Destination:
    """Backend and pool of a volume.

    :ivar host: ``host@backend#pool``, as in ``volumes.host``
    :ivar availability_zone: of that backend
    """

    host: str
    availability_zone: str


@dataclass(frozen=True)
class Candidate:
    """One pool of a backend with its last report.

    :ivar host: ``host@backend``
    :ivar state: "up", or why it gets no volumes: "down" (no report lately, or its driver is not
        ready), "disabled" or "frozen"
    :ivar capabilities: as :func:`capabilities_of` returns them
    :ivar available_gib: GiB that may still be promised to volumes there
    """

    host: str
    availability_zone: str
    state: str
    capabilities: Mapping[str, Any]
    available_gib: float

    @property
    def usable(self) -> bool:
        """Whether it gets volumes."""
        return self.state == _UP

    @property
    def pool(self) -> str:
        """``host@backend#pool``, as in ``volumes.host``."""
        return f"{self.host}#{self.capabilities['pool_name']}"


def select_backend(request: RequestSpec) -> Destination:
    """Select the suitable pool with the most free capacity.

    :raises NoValidBackend: with the reason
    """
    return select(request, list_candidates())


def check_free_capacity(host: str | None, more_gib: int) -> None:
    """Check that a volume at ``host@backend#pool`` can be extended by ``more_gib``.

    A backend that is down or unknown refuses later by itself.

    :raises NoValidBackend: naming the capacity that is left
    """
    usable = [candidate for candidate in _list_of_host(host) if candidate.usable]
    if usable:
        _filter_capacity(more_gib, usable)


def select_on_host(host: str | None, request: RequestSpec) -> Destination:
    """Return the destination of a clone of a volume at ``host@backend#pool``.

    :raises NoValidBackend: with the reason
    """
    candidates = _only(host)
    _check_ability(candidates, "clone")
    return select(request, candidates)


def select_for_object(host: str, request: RequestSpec) -> Destination:
    """Return the destination of a volume that is made of an object at ``host@backend#pool``.

    :raises NoValidBackend: with the reason
    """
    check_manage_existing(host)
    return select(request, _only(host))


def check_manage_existing(host: str | None) -> None:
    """Check that the backend of ``host@backend#pool`` can manage and unmanage objects.

    :raises NoValidBackend: its driver cannot do that
    """
    _check_ability(_list_of_host(host), "manage_existing")


def check_snapshots(host: str | None) -> None:
    """Check that the backend of ``host@backend#pool`` has snapshots.

    :raises NoValidBackend: its driver cannot do that
    """
    _check_ability(_list_of_host(host), "snapshots")


def check_manage_snapshots(host: str | None) -> None:
    """Check that the backend of ``host@backend#pool`` can manage and unmanage snapshots.

    :raises NoValidBackend: its driver cannot do that
    """
    _check_ability(_list_of_host(host), "manage_snapshots")


def check_read_snapshots(host: str | None) -> None:
    """Check that managers can read snapshots of the backend of ``host@backend#pool``.

    :raises NoValidBackend: its driver cannot do that
    """
    if not all(item.capabilities.get("read_snapshots") for item in _list_of_host(host)):
        raise exception.NoValidBackend(reason="the driver of its backend has no read_snapshots.")


def check_online_extend(host: str | None) -> None:
    """Check that a volume at ``host@backend#pool`` can be extended while hosts use it.

    :raises NoValidBackend: its driver cannot do that
    """
    _check_ability(_list_of_host(host), "online_extend")


def _check_ability(candidates: Iterable[Candidate], name: str) -> None:
    # Managers of an older release do not report it: their drivers have it, or refuse later.
    if any(candidate.capabilities.get(name) is False for candidate in candidates):
        raise exception.NoValidBackend(reason=f"the driver of its backend has no {name}.")


def check_extra_specs(
    host: str | None, extra_specs: Mapping[str, str | None], availability_zone: str | None
) -> None:
    """Check that a volume's backend has the capabilities of extra specs; nothing moves.

    :param host: ``host@backend#pool``
    :raises NoValidBackend: with the reason
    """
    request = RequestSpec(0, extra_specs, availability_zone)
    _filter_capabilities(extra_specs, _filter_availability_zone(request, _only(host)))


def _only(host: str | None) -> list[Candidate]:
    found = _list_of_host(host)
    if not found:
        raise exception.NoValidBackend(reason="its backend has not reported yet.")
    return found


def _list_of_host(host: str | None) -> list[Candidate]:
    """Return the pool ``host@backend#pool``; if it is not reported, all of its backend."""
    backend = (host or "").partition("#")[0]
    found = [candidate for candidate in list_candidates() if candidate.host == backend]
    return [candidate for candidate in found if candidate.pool == host] or found


def check_not_frozen(host: str | None) -> None:
    """Check that the backend of ``host@backend#pool`` is not frozen.

    :raises BackendFrozen: without its name, which not all callers may read
    """
    backend = (host or "").partition("#")[0]
    if backend and services.is_frozen(services.BINARY, backend):
        raise exception.BackendFrozen


def check_reporting(backend: str) -> None:
    """Check that a manager of ``host@backend`` reports; a call to it would only time out.

    :raises Unavailable: none does
    """
    reports = services.page({"binary": services.BINARY, "host": backend})
    if not any(report["alive"] for report in reports):
        raise exception.Unavailable(
            reason="No manager of the volume's backend reports. Start it, then repeat the request."
        )


def list_candidates() -> list[Candidate]:
    """Return all pools with their last reports, less later promises; costs 2 statements."""
    rows = services.page({"binary": services.BINARY})
    promised = volume_queries.allocated_since({row["host"]: row["seen_at"] for row in rows})
    return [
        Candidate(
            host=row["host"],
            availability_zone=row["availability_zone"],
            state=_state(row),
            capabilities=capabilities_of(pool),
            available_gib=free_capacity(pool) - _promised(pool, promised),
        )
        for row in rows
        for pool in split_by_pool(row)
    ]


def split_by_pool(row: ServiceRow) -> list[ServiceRow]:
    """Return the row of a backend once for each of its pools, with a report of this pool.

    A backend that reports no pools is one pool.
    """
    report = row["report"] or {}
    return [
        {
            **row,
            "report": {
                **report,
                **pool,
                "capabilities": {
                    **report["capabilities"],
                    **pool["capabilities"],
                    "pool_name": pool["name"],
                },
            },
        }
        for pool in report.get("pools", ())
    ] or [row]


def _promised(pool: ServiceRow, promised: Mapping[str, int]) -> int:
    """Return the GiB that were promised to volumes since a pool reported.

    :param pool: as of :func:`split_by_pool`
    :param promised: by ``host@backend#pool``
    """
    if pool["report"] and pool["report"].get("pools"):
        return promised.get(f"{pool['host']}#{pool['report']['name']}", 0)
    return sum(gib for host, gib in promised.items() if host.partition("#")[0] == pool["host"])


def _state(row: ServiceRow) -> str:
    if row["disabled"]:
        return "disabled"
    if row["frozen"]:
        return "frozen"
    return _UP if is_up(row) else "down"


def select(request: RequestSpec, candidates: Sequence[Candidate]) -> Destination:
    """Select from ``candidates``, as :func:`select_backend` does.

    :raises NoValidBackend: with the reason
    """
    suitable = _filter_usable(candidates)
    suitable = _filter_availability_zone(request, suitable)
    unusable = [candidate for candidate in candidates if not candidate.usable]
    suitable = _filter_capabilities(request.extra_specs, suitable, unusable)
    suitable = _filter_capacity(request.size_gib, suitable)
    most = max(candidate.available_gib for candidate in suitable)
    # A random one of equals: otherwise all API processes would select the first.
    best = [candidate for candidate in suitable if candidate.available_gib == most]
    picked = random.choice(best)  # noqa: S311
    return Destination(picked.pool, picked.availability_zone)


def capabilities_of(row: ServiceRow) -> dict[str, Any]:
    """Return the capabilities for extra specs, and for get_pools.

    A driver may name its pool and its ``volume_backend_name``; otherwise both are the backend's
    name in ``enabled_backends``.
    """
    report = row["report"] or {}
    name = row["host"].rpartition("@")[2]
    return {
        "volume_backend_name": name,
        "pool_name": name,
        "storage_protocol": report.get("protocol"),
        **report.get("capabilities", {}),
    }


def is_up(row: ServiceRow) -> bool:
    """Return whether a backend reported lately, and was ready then."""
    return bool(row["alive"] and row["up"])


def free_capacity(row: ServiceRow) -> float:
    """Return the GiB that a pool may still promise, by its last report.

    A backend that allocates late (``thin_provisioning``) may promise
    ``[manager]max_over_subscription_ratio`` times what it has.
    """
    report = row["report"] or {}
    free = _unless_unlimited(report.get("free_gib"))
    total = _unless_unlimited(report.get("total_gib"))
    if not is_true(report.get("capabilities", {}).get("thin_provisioning")) or math.isinf(total):
        return free
    ratio: float = CONF.manager.max_over_subscription_ratio
    return min(total * ratio - (report.get("allocated_gib") or 0), free * ratio)


def _unless_unlimited(gib: float | None) -> float:
    return math.inf if gib is None else gib


def is_true(value: object) -> bool:
    """Return whether a capability or an extra spec's value is true."""
    return strutils.bool_from_string(value)


def _filter_usable(candidates: Sequence[Candidate]) -> list[Candidate]:
    if not candidates:
        raise exception.NoValidBackend(reason="no backend has reported yet.")
    suitable = [candidate for candidate in candidates if candidate.usable]
    if not suitable:
        raise exception.NoValidBackend(reason="all backends are down, disabled or frozen.")
    return suitable


def _filter_availability_zone(
    request: RequestSpec, candidates: Sequence[Candidate]
) -> list[Candidate]:
    zones = {name for name in [request.availability_zone] if name}
    if spec := request.extra_specs.get(ZONES_SPEC):
        allowed = {name.strip() for name in spec.split(",")}
        zones = zones & allowed if zones else allowed
        if not zones:
            raise exception.NoValidBackend(
                reason=f"its type is not for the availability zone {request.availability_zone}."
            )
    suitable = [
        candidate for candidate in candidates if not zones or candidate.availability_zone in zones
    ]
    if not suitable:
        known = ", ".join(sorted({candidate.availability_zone for candidate in candidates}))
        raise exception.NoValidBackend(
            reason=f"the availability zone {' or '.join(sorted(zones))} has no backend that "
            f"is up; such zones are: {known}."
        )
    return suitable


def _filter_capabilities(
    extra_specs: Mapping[str, str | None],
    candidates: Sequence[Candidate],
    unusable: Sequence[Candidate] = (),
) -> list[Candidate]:
    suitable = [
        candidate
        for candidate in candidates
        if has_capabilities(candidate.capabilities, extra_specs)
    ]
    if not suitable:
        specs = dict(_required_capabilities(extra_specs))
        LOG.info("No backend has all of %s", specs)
        missing = [
            key
            for key, spec in specs.items()
            if not any(_has(candidate.capabilities, key, spec) for candidate in candidates)
        ]
        reason = (
            f"no backend that is up has what its type asks for: {', '.join(sorted(missing))}."
            if missing
            else f"no backend that is up has all of {', '.join(sorted(specs))} together."
        )
        states = {
            candidate.state
            for candidate in unusable
            if has_capabilities(candidate.capabilities, extra_specs)
        }
        if states:
            reason += f" A backend that has it is {' or '.join(sorted(states))}."
        raise exception.CapabilityMissing(reason=reason)
    return suitable


def _required_capabilities(extra_specs: Mapping[str, str | None]) -> Iterable[tuple[str, str]]:
    sharing = multiattach.parse(extra_specs)
    known = multiattach.KEYS | lost_agents.KEYS
    for key, spec in extra_specs.items():
        name = key.removeprefix(_SCOPE)
        if ":" not in name and name not in known and spec is not None:
            yield name, spec
    if sharing.multiattach:
        yield multiattach.MULTIATTACH, _TRUE
    if sharing.mode is multiattach.Mode.RO:
        yield "read_only_enforced", _TRUE


def has_capabilities(
    capabilities: Mapping[str, Any], extra_specs: Mapping[str, str | None]
) -> bool:
    """Return whether a backend with these capabilities can have volumes of a type."""
    return all(_has(capabilities, *spec) for spec in _required_capabilities(extra_specs))


def _has(capabilities: Mapping[str, Any], key: str, spec: str) -> bool:
    offer = capabilities.get(key)
    return offer is not None and matches_spec(offer, spec)


def _filter_capacity(size_gib: int, candidates: Sequence[Candidate]) -> list[Candidate]:
    suitable = [candidate for candidate in candidates if candidate.available_gib >= size_gib]
    if not suitable:
        most = max(candidate.available_gib for candidate in candidates)
        raise exception.NoValidBackend(
            reason=f"{size_gib} GiB are asked for and the most that a fitting backend has left "
            f"is {max(0, math.floor(most))} GiB."
        )
    return suitable


def matches_spec(offer: object, spec: str) -> bool:
    """Return whether a capability satisfies an extra spec.

    :param offer: value in the report; of a list, one member is enough
    :param spec: a plain value, or an operator and its operand: ``<is> True``, ``<in> part``,
        ``<or> a <or> b``, ``= 5`` (at least), ``== != >= <=`` for numbers, ``s== s!= s>= s> s<=
        s<`` for strings

    Source: the Block Storage service's administration guide, capabilities of back ends.
    """
    if isinstance(offer, list | tuple):
        return any(matches_spec(value, spec) for value in offer)
    verb, _, operand = spec.strip().partition(" ")
    compare = _OPERATORS.get(verb)
    if compare is not None:
        return compare(offer, operand.strip())
    return spec.lower() == str(offer).lower() if isinstance(offer, bool) else spec == str(offer)


def _by_number(compare: Callable[[float, float], bool]) -> Callable[[object, str], bool]:
    def compared(offer: object, operand: str) -> bool:
        try:
            return compare(float(str(offer)), float(operand))
        except ValueError:
            return False

    return compared


def _by_text(compare: Callable[[str, str], bool]) -> Callable[[object, str], bool]:
    return lambda offer, operand: compare(str(offer), operand)


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_OPERATORS: Final[Mapping[str, Callable[[object, str], bool]]] = MappingProxyType(
    {
        "=": _by_number(operator.ge),
        **{verb: _by_number(compare) for verb, compare in _COMPARISONS.items()},
        **{f"s{verb}": _by_text(compare) for verb, compare in _COMPARISONS.items()},
        "<is>": lambda offer, operand: is_true(offer) == is_true(operand),
        "<in>": lambda offer, operand: operand in str(offer),
        "<or>": lambda offer, operand: str(offer) in map(str.strip, operand.split("<or>")),
    }
)
