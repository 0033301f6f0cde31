# SPDX-License-Identifier: Apache-2.0
"""Watch of events of attachments, and the timeline of one attachment; attachd 1.0.

A client polls with the revision that it saw last, or reads a stream.  Either way it gets each
event once, in order, also across restarts.
"""

from collections.abc import Iterable, Mapping
import time
from typing import Any, Final

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.events import broadcaster, parameters, policy, sse, view
from attachd.context import RequestContext
from attachd.db.attachments import events
from attachd.db.row_types import NumberedEventRow
from attachd.objects import scope

Body = dict[str, Any]

MAX_PAGES: Final = 4
"""How many pages of past events one request reads; its client continues at the revision."""

_DOC: Final = EndpointDoc(
    {"events": list[view.Event], "revision": int}, parameters.QUERY_PARAMETERS, (410, 503)
)


@endpoint("GET", "/events", attachd_since=mv.ATTACHD_1_0, policy=policy.WATCH, doc=_DOC)
def watch(
    ctx: RequestContext,
    query: Mapping[str, str],
    request: webob.Request,
    response: webob.Response,
) -> Body | sse.EventStream:
    """List events since a revision: at once, after waiting for one, or as a stream."""
    if sse.CONTENT_TYPE in request.headers.get("Accept", ""):
        return _stream(ctx, query, request, response)
    event_query = parameters.read(ctx, query)
    sequence = events.assign_sequence()
    if event_query.since is None:
        return {"events": [], "revision": sequence.assigned}
    parameters.check(event_query.since, sequence)
    if event_query.since < sequence.assigned or not event_query.wait:
        return _read_past(event_query, event_query.since, sequence.assigned)
    feed = broadcaster.get()
    with feed.subscribed(_subscriber(ctx)):
        return _wait(event_query, event_query.since, feed)


def _subscriber(ctx: RequestContext) -> broadcaster.Subscriber:
    return broadcaster.Subscriber(ctx.project_id, ctx.user_id)


def _stream(
    ctx: RequestContext, query: Mapping[str, str], request: webob.Request, response: webob.Response
) -> sse.EventStream:
    event_query = parameters.read(ctx, query, request.headers.get("Last-Event-ID"))
    sequence = events.assign_sequence()
    since = sequence.assigned if event_query.since is None else event_query.since
    parameters.check(since, sequence)
    answer = sse.EventStream(broadcaster.get(), _subscriber(ctx), event_query, since)
    response.content_type = sse.CONTENT_TYPE
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return answer


def _read_past(event_query: parameters.EventQuery, revision: int, given: int) -> Body:
    """Collect the matching events after a revision, from at most MAX_PAGES of all events.

    :param given: the latest revision; reading ends when no event of the project is left
    """
    since = revision
    found: list[Body] = []
    for _ in range(MAX_PAGES):
        rows = events.list_after(revision, broadcaster.PAGE_SIZE, event_query.project_id)
        if not rows:
            revision = max(revision, given)
            break
        revision = _collect(event_query, rows, rows[-1]["revision"], found)
        if len(found) == event_query.limit:
            break
    # Old events may have been purged during the read: then the client must learn of the gap.
    parameters.check(since, events.sequence())
    return {"events": found, "revision": revision}


def _wait(
    event_query: parameters.EventQuery, revision: int, feed: broadcaster.Broadcaster
) -> Body:
    """Collect the matching events after a revision, and wait for the first one."""
    deadline = time.monotonic() + event_query.wait
    found: list[Body] = []
    while not found:
        left = deadline - time.monotonic()
        batch = feed.read_after(revision, max(0.0, left), event_query.project_id)
        rows = [event.row for event in batch.events]
        revision = _collect(event_query, rows, batch.revision, found)
        if left <= 0 or feed.closing:
            break
    return {"events": found, "revision": revision}


def _collect(
    event_query: parameters.EventQuery,
    rows: Iterable[NumberedEventRow],
    revision: int,
    found: list[Body],
) -> int:
    """Add the matching rows to ``found``; return the revision up to which it is complete.

    :param revision: up to which the rows are complete
    """
    for row in rows:
        found += [shown] if (shown := event_query.shown(row)) else []
        if len(found) == event_query.limit:
            return row["revision"]
    return revision


@endpoint(
    "GET",
    "/attachments/{attachment_id}/timeline",
    attachd_since=mv.ATTACHD_1_0,
    policy=policy.TIMELINE,
    doc=EndpointDoc({"timeline": list[view.Event]}),
)
def timeline(ctx: RequestContext, attachment_id: str) -> dict[str, Any]:
    """List the events of an attachment, oldest first, even if it was deleted."""
    rows = events.list_of_attachment(attachment_id, scope(ctx))
    if not rows:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    internals = parameters.may_see_internals(ctx, rows[0]["project_id"])
    return {"timeline": [view.event(row, internals=internals) for row in rows]}
