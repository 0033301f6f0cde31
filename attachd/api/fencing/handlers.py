# SPDX-License-Identifier: Apache-2.0
"""Hosts that are fenced or drained, in attachd 1.1: list and show them, and begin and end both."""

from collections.abc import Mapping, Sequence
import contextlib
import datetime
from typing import Any, Final, NotRequired, TypedDict

from oslo_log import log

from attachd import exception, host_identity, notifications
from attachd.api import microversions as mv
from attachd.api import paging, polling, validation
from attachd.api.attachments import schema
from attachd.api.endpoint import EndpointDoc, Link, Links, endpoint
from attachd.api.fencing import fence_attachments, policy
from attachd.closed_hosts import drains
from attachd.closed_hosts.drains import AgentStates, Drain
from attachd.closed_hosts.fences import FencedAttachment
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences, host_identities
from attachd.db.agents import agent_store
from attachd.db.host_fences import Lift
from attachd.db.row_types import AttachmentWithVolumeRow, HostFenceRow
from attachd.host_identity import HostIdentity

LOG = log.getLogger(__name__)

ITEM: Final = "/hosts/{host}"
Body = dict[str, Any]

_FENCE_BODY: Final = validation.wrapped(
    "fence",
    validation.fields(
        {
            "reason": validation.REASON,
            "lift": {"type": "string", "enum": [*Lift]},
        },
        "reason",
    ),
)
_EMPTY: Final = {"type": ["object", "null"], "additionalProperties": False}
_UNFENCE_BODY: Final = validation.wrapped("unfence", _EMPTY)
_DRAIN_BODY: Final = validation.wrapped(
    "drain",
    validation.fields(
        {
            "reason": validation.REASON,
            "detach": {
                "type": ["string", "array"],
                "pattern": r"\Aall\Z",
                "description": "'all', or a list of ids of attachments",
                "items": {"type": "string", "format": "uuid"},
                "maxItems": 1000,
            },
        }
    ),
)
_RESUME_BODY: Final = validation.wrapped("resume", _EMPTY)


_CLAIM_BODY: Final = validation.wrapped(
    "claim",
    validation.fields(
        {
            "initiators": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 255},
                "minItems": 1,
                "maxItems": agent_store.MAX_REPORTED,
            }
        },
        "initiators",
    ),
)
_NAME: Final = validation.Validator(schema.HOST)
_LIST_EXTRAS: Final = {"hosts_links": NotRequired[list[Link]], "count": NotRequired[int]}


class Claim(TypedDict):
    """The initiators of a host.

    :ivar host: the name under which it is known
    :ivar initiators: all that are its own now
    """

    host: str
    initiators: list[str]


class Host(TypedDict):
    """A host, its fence and its drain.

    :ivar host: the name under which it is known
    :ivar initiators: those that are known to be its own
    :ivar fenced: whether it is fenced: nothing is attached there
    :ivar generation: how often it was fenced
    :ivar fenced_at: since when; null: it is not fenced
    :ivar reason: of the last fence
    :ivar user_id: who fenced it last
    :ivar lift: of the last fence: "auto", if it ends when the agent of the host reports a new
        start without devices, or "manual", if only a request ends it; null: it was never fenced
    :ivar agent_state: "up", "down", "new", "conflict", or null if it has no agent
    :ivar attachment_ids: of its attachments that may give it access to a volume; of a connection
        that serves an attachment of os-attach, that one's
    :ivar drain: null: it is not drained
    """

    host: str
    initiators: list[str]
    fenced: bool
    generation: int
    fenced_at: datetime.datetime | None
    reason: str | None
    user_id: str | None
    lift: str | None
    agent_state: str | None
    attachment_ids: list[str]
    drain: Drain | None


class Fence(TypedDict):
    """The result of fencing a host.

    :ivar host: as Host
    :ivar attachments: those by which it had access, each with the result
    """

    host: Host
    attachments: list[FencedAttachment]


@endpoint(
    "GET",
    "/hosts",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.GET,
    doc=EndpointDoc({"hosts": list[Host], **_LIST_EXTRAS}, paging.NAME_PAGE_PARAMETERS),
)
def index(query: Mapping[str, str], version: mv.Version, links: Links) -> Body:
    """List a page of the hosts that are fenced or drained, sorted by name."""
    parameters = dict(query)
    counted = paging.pop_with_count(parameters, version)
    page = paging.read_by_name(parameters)
    fences = {row["host"]: row for row in host_fences.page_closed(page)}
    known, rows = host_fences.get_identities(fences), host_fences.list_attachments_of([*fences])
    states = agent_store.list_states(fences)
    shown = [_view(known[host], fence, states, rows[host]) for host, fence in fences.items()]
    answer: Body = {"hosts": shown}
    if more := paging.next_link(links, "/hosts", query, page, shown, "host"):
        answer["hosts_links"] = more
    if counted:
        answer["count"] = host_fences.count_closed()
    return answer


@endpoint(
    "GET",
    ITEM,
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.GET,
    doc=EndpointDoc({"host": Host}),
)
def show(host: str) -> Body:
    """Show whether a host is fenced or drained, and what it has attached."""
    return {"host": _show(_resolve(host))}


@endpoint(
    "POST",
    "/hosts/{host}/fence",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.FENCE,
    body=_FENCE_BODY,
    doc=EndpointDoc({"fence": Fence}),
)
def fence(ctx: RequestContext, host: str, body: Body) -> Body:
    """Fence a host: nothing is attached there, and its access to all volumes ends, with proof.

    The host takes no part.  A fenced host stays fenced, and the attachments that are left are
    tried again.  Only a request lifts the fence, unless its ``lift`` is "auto".  The answer comes
    within [rpc]attach_timeout, also if not all is done by then.
    """
    host = _resolve(host)  # Fencing a host with a misspelt name must not look like a success.
    asked = body["fence"]
    lift = Lift(asked.get("lift", Lift.MANUAL))
    row, is_new = host_fences.fence(host, asked["reason"], ctx.user_id, lift)
    if is_new:
        LOG.warning(
            "Host %s: fenced by user %s of project %s. Reason: %s",
            host,
            ctx.user_id,
            ctx.project_id,
            row["reason"],
        )
        notifications.fence_start(row)
    results = fence_attachments.fence_host(ctx, host)
    return {"fence": {"host": _show(host), "attachments": results}}


@endpoint(
    "POST",
    "/hosts/{host}/unfence",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.UNFENCE,
    body=_UNFENCE_BODY,
    doc=EndpointDoc({"host": Host}),
)
def unfence(ctx: RequestContext, host: str) -> Body:
    """Lift the fence of a host that was checked: volumes can be attached there again."""
    host = _resolve(host)
    if host_fences.lift(host):
        LOG.warning("Host %s: fence lifted by user %s", host, ctx.user_id)
        ended = host_fences.find(host)
        assert ended is not None, "a fence is never deleted"
        notifications.host("unfence", host, notifications.HostStep.from_fence(ended))
    return {"host": _show(host)}


@endpoint(
    "POST",
    "/hosts/{host}/drain",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.DRAIN,
    body=_DRAIN_BODY,
    doc=EndpointDoc({"host": Host}, faults=(409,)),
)
def drain(ctx: RequestContext, host: str, body: Body) -> Body:
    """Take a host out of service: nothing new is attached there, and what is asked is detached.

    A drained host keeps its reason, and goes on with what it was asked before.  The answer comes
    within [rpc]attach_timeout, also if not all is done by then; managers go on.  What has failed
    is tried again by another request.
    """
    host = _resolve(host)
    requested = body["drain"]
    asked = requested.get("detach", [])
    if asked != drains.ALL:
        asked = [validation.canonical(item) for item in asked]
        rows = host_fences.list_attachments(host)
        drains.check_ids(host, host_fences.find(host), rows, asked)
    row, is_new = host_fences.drain(host, requested.get("reason"), ctx.user_id)
    step = notifications.HostStep.from_drain(row)
    if is_new:
        LOG.warning(
            "Host %s: drained by user %s of project %s. Reason: %s",
            host,
            ctx.user_id,
            ctx.project_id,
            step.reason,
        )
        notifications.host("drain.start", host, step)
    drains.request(row, host_fences.list_attachments(host), asked)
    tried: set[str] = set()
    polling.wait_while(lambda: drains.advance(ctx, host, tried), CONF.rpc.attach_timeout)
    drains.notify_end(host)
    return {"host": _show(host)}


@endpoint(
    "POST",
    "/hosts/{host}/resume",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.RESUME,
    body=_RESUME_BODY,
    doc=EndpointDoc({"host": Host}),
)
def resume(ctx: RequestContext, host: str) -> Body:
    """End the drain of a host: volumes can be attached there again, unless it is fenced."""
    host = _resolve(host)
    if host_fences.resume(host):
        LOG.warning("Host %s: drain ended by user %s", host, ctx.user_id)
        ended = host_fences.find(host)
        step = notifications.HostStep(ended and ended["generation"], user_id=ctx.user_id)
        notifications.host("resume", host, step)
    return {"host": _show(host)}


@endpoint(
    "POST",
    "/hosts/{host}/claim",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.CLAIM,
    body=_CLAIM_BODY,
    doc=EndpointDoc({"claim": Claim}, faults=(409,)),
)
def claim(ctx: RequestContext, host: str, body: Body) -> Body:
    """Assign initiators to a host, which may be new; another host that has one loses it.

    What the other host has attached stays.  If that host is fenced, it keeps its initiators.
    """
    _NAME.check(host, "host")
    name = host_fences.get_identity(host).name
    given = body["claim"]["initiators"]
    parsed = {text: host_identity.parse_initiator(text) for text in given}
    for text, item in parsed.items():
        if item is None:
            raise exception.InvalidInput(
                field="claim.initiators",
                value=text,
                reason="It is no iSCSI name, NVMe qualified name or WWPN.",
            )
    identifiers = frozenset(item for item in parsed.values() if item)
    host_identities.claim(HostIdentity(name, identifiers), host_identities.Source.ADMIN)
    LOG.warning(
        "Host %s: user %s has assigned initiators to it: %s", name, ctx.user_id, ", ".join(given)
    )
    known = host_fences.get_identities([name])[name]
    return {"claim": {"host": name, "initiators": _initiators(known)}}


def _initiators(identity: HostIdentity) -> list[str]:
    return sorted(map(host_identity.value, identity.initiators))


def _resolve(host: str) -> str:
    """Return the name under which a host is known, for any spelling of it.

    :raises NotFound: it is unknown
    :raises Conflict: several hosts may be meant
    """
    known = host_fences.get_identity(host).name
    _show(known)
    return known


def _show(host: str) -> Host:
    """Return a host that has a fence, a drain, an agent or an attachment.

    :raises NotFound: it has none of them
    """
    found = host_fences.find(host)
    rows = host_fences.list_attachments(host)
    agents = dict(drains.get_agent_states(rows))
    with contextlib.suppress(exception.AgentNotFound):
        agents[host] = agent_store.state(agent_store.get(host))
    is_unknown = found is None and host not in agents and not rows
    if is_unknown or host.endswith(" "):  # MariaDB finds "a" as "a ", too.
        raise exception.NotFound(
            f"Host {host} could not be found: it has no agent, and no attachment gives it access "
            "to a volume. Check its name."
        )
    return _view(host_fences.get_identities([host])[host], found, agents, rows)


class _LastFence(TypedDict):
    """What is shown of the last fence of a host; HostFenceRow has it, too."""

    generation: int
    fenced_at: datetime.datetime | None
    reason: str | None
    user_id: str | None
    lift: str | None


_NEVER_FENCED: Final[_LastFence] = {
    "generation": 0,
    "fenced_at": None,
    "reason": None,
    "user_id": None,
    "lift": None,
}


def _view(
    identity: HostIdentity,
    fence: HostFenceRow | None,
    agents: AgentStates,
    rows: Sequence[AttachmentWithVolumeRow],
) -> Host:
    known: _LastFence = _NEVER_FENCED if fence is None else fence
    return {
        "host": identity.name,
        "initiators": _initiators(identity),
        "fenced": known["fenced_at"] is not None,
        "generation": known["generation"],
        "fenced_at": known["fenced_at"],
        "reason": known["reason"],
        "user_id": known["user_id"],
        "lift": known["lift"],
        "agent_state": agents.get(identity.name),
        "attachment_ids": [row["parent_id"] or row["id"] for row in rows],
        "drain": drains.show(fence, rows, agents),
    }
