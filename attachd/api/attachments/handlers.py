# SPDX-License-Identifier: Apache-2.0
"""Endpoints of attachments.

Each handler that changes something loads, authorises, acts and shows.  A reservation is committed
before the manager is asked to connect, and only the manager writes after that.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired

import webob

from attachd import exception
from attachd.api import detach_guard, filter_register, idempotency, paging, validation
from attachd.api import microversions as mv
from attachd.api.attachments import (
    agent_attach,
    deletion,
    dry_run,
    filters,
    lifecycle,
    moves,
    policy,
    schema,
    view,
)
from attachd.api.endpoint import (
    AsyncPreference,
    EndpointDoc,
    Links,
    action,
    endpoint,
    is_dry_run,
)
from attachd.api.fencing import force_attach
from attachd.context import RequestContext
from attachd.db.attachments import attachment_queries, deleted_attachments
from attachd.db.engine.paging import Page
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment, Volume, scope
from attachd.rpc import bulkheads
from attachd.states import AttachmentState

ITEM = "/attachments/{attachment_id}"
ACTION = "/attachments/{attachment_id}/action"


_LIST_PARAMETERS = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **filter_register.ATTACHMENT.parameters,
    **filters.ATTACHD_FILTERS,
    **filters.OF_DELETED,
    paging.WITH_COUNT: validation.query_flag(
        "attachd 1.0. Return the number of attachments on all pages."
    ),
}
_CREATE_DOC = lifecycle.DOC._replace(
    response={
        "attachment": NotRequired[view.Detail | view.ExtDetail],
        "dry_run": NotRequired[dry_run.DryRun],
    },
    parameters=dry_run.QUERY_PARAMETERS,
    ext_parameters=frozenset(dry_run.QUERY_PARAMETERS),
)
_DELETE_DOC = EndpointDoc(
    {
        "attachments": NotRequired[list[view.Summary]],
        "shared_connections_by_attachment": NotRequired[list[str]],
        "attachment": NotRequired[view.Detail | view.ExtDetail],
    },
    deletion.QUERY_PARAMETERS,
    (409, 429, 504),
    frozenset(deletion.QUERY_PARAMETERS),
)


_NO_ARGUMENTS: Final = {"type": ["object", "null"], "maxProperties": 0}

_CONNECTION: Final = "connection_info"


def _keep_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of an answer: a connection holds secrets, so it is left out."""
    shown = answer["attachment"]
    kept = None if shown[_CONNECTION] else shown[_CONNECTION]
    return {"attachment": {**shown, _CONNECTION: kept}}


def _replay_answer(
    ctx: RequestContext, resource_id: str, kept: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stored answer, with the connection as the attachment has it now.

    Policy on secrets applies to the caller of the repeated request.

    :raises KeyResourceGone: the attachment is deleted
    """
    attachment = idempotency.load_created(
        resource_id, "attachment", lambda: Attachment.get(ctx, resource_id)
    )
    shown = kept["attachment"]
    if attachment.agent is not None:
        # The caller who repeats the request needs the outcome of the agent's work since then.
        current = view.show(ctx, attachment)["attachment"]
        return {"attachment": {name: current[name] for name in shown}}  # type: ignore[literal-required]
    if shown[_CONNECTION] is None:
        current = view.show(ctx, attachment)["attachment"]
        shown = {**shown, _CONNECTION: current["connection_info"]}
    return {"attachment": shown}


IDEMPOTENCY_SPEC: Final = idempotency.IdempotencySpec(_keep_answer, _replay_answer)


@endpoint(
    "POST",
    "/attachments",
    since=mv.NEW_ATTACH,
    policy=policy.CREATE,
    body=schema.CREATE,
    idempotent=IDEMPOTENCY_SPEC,
    doc=_CREATE_DOC,
)
def create(
    ctx: RequestContext,
    body: dict[str, Any],
    query: Mapping[str, str],
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
    async_response: AsyncPreference | None = None,
) -> lifecycle.AttachmentBody | dict[str, dry_run.DryRun]:
    """Reserve a volume; connect it if a connector is given, or attach it on a host by name.

    The answer shows the state before the connection, as the Block Storage API does.  Under
    attachd 1.1, and for a host whose agent attaches, it shows the state after it.  With
    ``instead_of`` another attachment is fenced first; with ``move_from`` the new one takes over
    from it when the move is finished.  With ``dry_run`` nothing is done, and the answer says
    whether all this is possible now.
    """
    requested = body["attachment"]
    connector = requested.get("connector")
    _check_fields(ctx, requested, dry_run=is_dry_run(query))
    volume = Volume.get(ctx, schema.identity(requested, "volume_uuid"))
    requested = _resolve(ctx, volume, requested)
    if is_dry_run(query):
        return dry_run.check(ctx, volume, requested)
    _authorize_create(ctx, volume, requested)
    if "instead_of" in requested:
        force_attach.replace(ctx, volume, requested)
    if async_response is not None and (connector or "host" in requested):
        lifecycle.check_backlog(volume.project_id)
    if "host" in requested:
        return agent_attach.attach(ctx, volume, requested, idempotency_claim, async_response)
    if connector and async_response is None:
        # A request that may not wait for the manager reserves nothing.
        bulkheads.check(volume.backend, volume.id, ctx.project_id)
    attachment = lifecycle.get_or_create(ctx, volume, requested, idempotency_claim)
    if not connector:
        return view.show(ctx, attachment)
    try:
        return lifecycle.connect_shared(ctx, attachment, connector, async_response)
    except Exception:
        # The caller does not learn the id of the reservation. If a manager has started to connect,
        # abandon() leaves the attachment as it is: the state is no longer `reserved`.
        lifecycle.abandon(attachment, idempotency_claim)
        raise


def _resolve(ctx: RequestContext, volume: Volume, requested: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its ids as rows have them, and what it has from another attachment."""
    if "instance_uuid" in requested:
        server = schema.identity(requested, "instance_uuid")
        requested = {**requested, "instance_uuid": server}
    return moves.resolve(ctx, volume, requested) if "move_from" in requested else requested


def _authorize_create(ctx: RequestContext, volume: Volume, requested: Mapping[str, Any]) -> None:
    ctx.authorize(policy.CREATE, volume)
    for field, rule in policy.RULES_OF_FIELDS.items():
        if field in requested:
            ctx.authorize(rule, volume)


def _check_fields(ctx: RequestContext, requested: Mapping[str, Any], *, dry_run: bool) -> None:
    """Check what the schema of a creation does not."""
    schema.check_versions(ctx, requested)
    if "host" in requested:
        agent_attach.check_fields(requested)
    elif requested.get("connector"):
        schema.check_connector(requested["connector"])
    if "instead_of" in requested and dry_run:
        force_attach.refuse_dry_run(requested)
    if "move_from" in requested:
        moves.check_field(requested)


@endpoint(
    "PUT",
    ITEM,
    since=mv.NEW_ATTACH,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=lifecycle.DOC,
)
def update(
    ctx: RequestContext,
    attachment_id: str,
    body: dict[str, Any],
    async_response: AsyncPreference | None = None,
) -> dict[str, view.Detail]:
    """Connect a reserved attachment; the answer shows the same state as in create()."""
    connector = body["attachment"]["connector"]
    schema.check_connector(connector)
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.UPDATE, attachment)
    lifecycle.check_no_agent(attachment)
    if async_response is not None:
        lifecycle.check_backlog(attachment.project_id)
    denied_rule = lifecycle.reconnect_denied_rule(ctx, attachment)
    return lifecycle.connect_exclusive(ctx, attachment, connector, denied_rule, async_response)


@action(
    ACTION,
    "os-complete",
    since=mv.NEW_ATTACH_COMPLETION,
    policy=policy.COMPLETE,
    status=204,
    doc=EndpointDoc(faults=(409,)),
)
def complete(ctx: RequestContext, attachment_id: str) -> None:
    """Record that the volume is in use; the value under the action's name is ignored.

    Without attachd 1.0 a reservation can be completed too, as the Block Storage API allows.
    """
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.COMPLETE, attachment)
    if attachment.wire_state != "attached":
        lifecycle.check_no_agent(attachment)
    before = attachment.state
    # No transition leads back to a reservation: the check holds when the row is changed.
    if ctx.attachd_version is not None and before == AttachmentState.RESERVED:
        raise exception.Conflict(
            reason=f"Attachment {attachment.id} is reserved: no host has access to volume "
            f"{attachment.volume_id}, so it cannot be completed. Connect it first: PUT "
            f"/attachments/{attachment.id} with the connector of the host."
        )
    attachment.complete()
    lifecycle.notify_completed(attachment, before)


@action(
    ACTION,
    "finish_move",
    since=mv.NEW_ATTACH,
    policy=policy.MOVE,
    body=_NO_ARGUMENTS,
    status=200,
    attachd_since=mv.ATTACHD_1_1,
    doc=lifecycle.DOC,
)
def finish_move(
    ctx: RequestContext, attachment_id: str, request: webob.Request
) -> dict[str, view.Detail]:
    """Finish the move to this attachment: the access of its source ends, and its host may write.

    The agent of the source's host removes the device first, if there is one; otherwise the source
    is fenced.  A repeated request goes on.
    """
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.MOVE, attachment)
    moves.finish(ctx, request, attachment)
    return view.show(ctx, Attachment.get(ctx, attachment_id))


@endpoint("GET", ITEM, since=mv.NEW_ATTACH, policy=policy.SHOW, doc=view.ONE_DOC)
def show(ctx: RequestContext, attachment_id: str) -> dict[str, view.Detail]:
    """Return one attachment, with all that is needed to connect to the volume.

    Under attachd 1.1 one that was deleted is shown as it was, as long as its events are kept.
    """
    try:
        attachment = Attachment.get(ctx, attachment_id)
    except exception.AttachmentNotFound:
        if ctx.attachd_version is None or ctx.attachd_version < mv.ATTACHD_1_1:
            raise
        deleted = deleted_attachments.find(attachment_id)
        if deleted is None or scope(ctx) not in {None, deleted.project_id}:
            raise
        ctx.authorize(policy.SHOW, deleted)
        return {"attachment": view.deleted_detail(deleted)}
    ctx.authorize(policy.SHOW, attachment)
    return view.show(ctx, attachment)


@endpoint(
    "GET",
    "/attachments",
    since=mv.NEW_ATTACH,
    policy=policy.LIST,
    doc=EndpointDoc({"attachments": list[view.Summary], **view.LIST_EXTRAS}, _LIST_PARAMETERS),
)
def index(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version, links: Links
) -> dict[str, Any]:
    """List attachments, newest first: one statement a page.

    Under attachd 1.0 the answer has a link to the next page, and the number of all on request;
    under 1.1 the list is one of deleted attachments on request.
    """
    if filters.pop_deleted(ctx, dict(query)):
        return _list_deleted(ctx, query, version, links, "/attachments", view.deleted_summary)
    rows, extras = _page(ctx, query, version, links, "/attachments", attachment_queries.page)
    return {**view.list_summaries(rows), **extras}


@endpoint(
    "GET",
    "/attachments/detail",
    since=mv.NEW_ATTACH,
    policy=policy.LIST,
    doc=EndpointDoc(
        {"attachments": list[view.Detail | view.ExtDetail], **view.LIST_EXTRAS}, _LIST_PARAMETERS
    ),
)
def detail(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version, links: Links
) -> dict[str, Any]:
    """List attachments, newest first, with all that is needed to connect.

    One statement a page, and a second one under attachd 1.0.
    """
    if filters.pop_deleted(ctx, dict(query)):
        path = "/attachments/detail"
        return _list_deleted(ctx, query, version, links, path, view.deleted_detail)
    rows, extras = _page(
        ctx, query, version, links, "/attachments/detail", attachment_queries.page_with_secrets
    )
    return {**view.list_details(ctx, rows), **extras}


def _page(
    ctx: RequestContext,
    query: Mapping[str, str],
    version: mv.Version,
    links: Links,
    path: str,
    read: Callable[[attachment_queries.Filters, Page], list[AttachmentRow]],
) -> tuple[list[AttachmentRow], dict[str, Any]]:
    """Return the rows of a page, and what the answer has besides them: only under attachd 1.0."""
    parameters = dict(query)
    filters.pop_deleted(ctx, parameters)
    is_ext = ctx.attachd_version is not None
    counted = is_ext and paging.pop_with_count(parameters, version)
    page = paging.read(parameters, filters.SORT_KEYS)
    matching = filters.parse(ctx, parameters, version)
    rows = read(matching, page)
    extras: dict[str, Any] = {}
    if is_ext and (more := paging.next_link(links, path, query, page, rows)):
        extras["attachments_links"] = more
    if counted:
        extras["count"] = attachment_queries.count(matching)
    return rows, extras


def _list_deleted(
    ctx: RequestContext,
    query: Mapping[str, str],
    version: mv.Version,
    links: Links,
    path: str,
    show_one: Callable[[deleted_attachments.DeletedAttachment], view.Summary],
) -> dict[str, Any]:
    """List deleted attachments, the last one first."""
    parameters = dict(query)
    filters.pop_deleted(ctx, parameters)
    counted = paging.pop_with_count(parameters, version)
    page = paging.read(parameters, filters.DELETED_SORT_KEYS, "detached_at")
    matching = filters.parse_deleted(ctx, parameters)
    if matching is None:
        return {"attachments": [], **({"count": 0} if counted else {})}
    shown = [show_one(item) for item in deleted_attachments.page(matching, page)]
    answer: dict[str, Any] = {"attachments": shown}
    if more := paging.next_link(links, path, query, page, shown):
        answer["attachments_links"] = more
    if counted:
        answer["count"] = deleted_attachments.count(matching)
    return answer


@endpoint(
    "DELETE",
    "/attachments/{attachment_id}",
    since=mv.NEW_ATTACH,
    policy=policy.DELETE,
    doc=_DELETE_DOC,
)
def delete(
    ctx: RequestContext,
    attachment_id: str,
    query: Mapping[str, str],
    request: webob.Request,
    async_response: AsyncPreference | None = None,
) -> dict[str, Any]:
    """Remove the host's access; return the volume's remaining attachments.

    Under attachd 1.0 the answer lists those that still use its connection.  A caller that asks for
    an asynchronous answer gets the attachment as it is until it is deleted; a deletion by force is
    always synchronous.
    """
    by_force = validation.parse_bool(deletion.FORCE, query.get(deletion.FORCE, "false"))
    attachment = deletion.load(ctx, attachment_id)
    ctx.authorize(policy.DELETE, attachment)
    if by_force:
        ctx.authorize(policy.FORCE, attachment)
    shared = None if ctx.attachd_version is None else view.SharedConnection(ctx, attachment)
    if by_force:
        remaining = deletion.force_delete(ctx, request, attachment)
    elif async_response is not None:
        return deletion.delete_async(ctx, request, attachment, async_response)
    else:
        remaining = deletion.delete(
            ctx, request, attachment, detach_guard.check(ctx, request, attachment)
        )
    return remaining if shared is None else view.list_sharing(shared)
