# SPDX-License-Identifier: Apache-2.0
"""Watching what becomes of attachments; attachd 1.0.  timeline.py looks back at one.

Who watches asks again and again from the revision that was told last, or listens to a stream.
Either way each event is told once, in order, whatever is restarted meanwhile.
"""

from collections.abc import Mapping, Sequence
import time
from typing import Any, Final

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.events import broadcaster, parameters, policy, sse, view
from attachd.context import RequestContext
from attachd.db.attachments import events
from attachd.objects.base import scope

Body = dict[str, Any]

_DOC: Final = EndpointDoc(
    {"events": list[view.Event], "revision": int}, parameters.QUERY_PARAMETERS, (410, 503)
)


@endpoint("GET", "/events", ext_since=mv.EXT_BASE, policy=policy.WATCH, doc=_DOC)
def watch(
    ctx: RequestContext,
    query: Mapping[str, str],
    request: webob.Request,
    response: webob.Response,
) -> Body | sse.EventStream:
    """Answer what has happened since a revision, at once, when something does, or as a stream."""
    if sse.CONTENT_TYPE in request.headers.get("Accept", ""):
        return _stream(ctx, query, request, response)
    event_query = parameters.read(ctx, query)
    there = events.assign_sequence()
    if event_query.since is None:
        return {"events": [], "revision": there.assigned}
    parameters.check(event_query.since, there)
    if event_query.since < there.assigned or not event_query.wait:
        return _look_back(event_query, event_query.since, there.assigned)
    feed = broadcaster.get()
    with feed.subscribed():
        return _wait(event_query, event_query.since, feed)


def _stream(
    ctx: RequestContext, query: Mapping[str, str], request: webob.Request, response: webob.Response
) -> sse.EventStream:
    event_query = parameters.read(ctx, query, request.headers.get("Last-Event-ID"))
    there = events.assign_sequence()
    since = there.assigned if event_query.since is None else event_query.since
    parameters.check(since, there)
    answer = sse.EventStream(broadcaster.get(), event_query, since)
    response.content_type = sse.CONTENT_TYPE
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return answer


def _look_back(event_query: parameters.EventQuery, revision: int, given: int) -> Body:
    """Gather what is wanted behind a place.

    :param given: the last place; whatever is not found until there is none of theirs
    """
    since = revision
    found: list[Body] = []
    while rows := events.list_after(revision, broadcaster.PAGE, event_query.project_id):
        revision = _gather(event_query, revision, rows, found)
        if len(found) == event_query.limit:
            break
    else:
        revision = max(revision, given)
    # The oldest may have been removed while they were read: nobody is to miss them unawares.
    parameters.check(since, events.sequence())
    return {"events": found, "revision": revision}


def _wait(
    event_query: parameters.EventQuery, revision: int, feed: broadcaster.Broadcaster
) -> Body:
    """Gather what is wanted behind a place, and wait for the first of it."""
    deadline = time.monotonic() + event_query.wait
    found: list[Body] = []
    while not found:
        left = deadline - time.monotonic()
        revision = _gather(event_query, revision, feed.read_after(revision, max(0.0, left)), found)
        if left <= 0 or feed.closing:
            break
    return {"events": found, "revision": revision}


def _gather(
    event_query: parameters.EventQuery,
    revision: int,
    rows: Sequence[broadcaster.Row],
    found: list[Body],
) -> int:
    """Add what is wanted of some rows, and return up to which place that is all."""
    for row in rows:
        revision = row["revision"]
        found += [shown] if (shown := event_query.shown(row)) else []
        if len(found) == event_query.limit:
            break
    return revision


@endpoint(
    "GET",
    "/attachments/{attachment_id}/timeline",
    ext_since=mv.EXT_BASE,
    policy=policy.TIMELINE,
    doc=EndpointDoc({"timeline": list[view.Event]}),
)
def timeline(ctx: RequestContext, attachment_id: str) -> dict[str, Any]:
    """Answer what has become of an attachment, the first first; it may be gone itself."""
    rows = events.list_of_attachment(attachment_id, scope(ctx))
    if not rows:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    internals = parameters.sees_internals(ctx, rows[0]["project_id"])
    return {"timeline": [view.event(row, internals=internals) for row in rows]}
