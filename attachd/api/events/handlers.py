# SPDX-License-Identifier: Apache-2.0
"""Watching what becomes of attachments; attachd 1.0.  timeline.py looks back at one.

Who watches asks again and again from the revision that was told last, or listens to a stream.
Either way each event is told once, in order, whatever is restarted meanwhile.
"""

from collections.abc import Mapping, Sequence
import time
from typing import Any, Final

import webob

from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.events import hub as hubs
from attachd.api.events import policy, stream, view, wishes
from attachd.context import RequestContext
from attachd.db import events

Body = dict[str, Any]

_DOC: Final = EndpointDoc({"events": list[view.Event], "revision": int}, wishes.QUERY, (410, 503))


@endpoint("GET", "/events", ext_since=mv.EXT_BASE, policy=policy.WATCH, doc=_DOC)
def watch(
    ctx: RequestContext,
    query: Mapping[str, str],
    request: webob.Request,
    response: webob.Response,
) -> Body | stream.Stream:
    """Answer what has happened since a revision, at once, when something does, or as a stream."""
    if stream.CONTENT_TYPE in request.headers.get("Accept", ""):
        return _stream(ctx, query, request, response)
    wish = wishes.read(ctx, query)
    there = events.give_places()
    if wish.since is None:
        return {"events": [], "revision": there.given}
    wishes.check(wish.since, there)
    if wish.since < there.given or not wish.wait:
        return _look_back(wish, wish.since, there.given)
    hub = hubs.the()
    with hub.watching():
        return _wait(wish, wish.since, hub)


def _stream(
    ctx: RequestContext, query: Mapping[str, str], request: webob.Request, response: webob.Response
) -> stream.Stream:
    wish = wishes.read(ctx, query, request.headers.get("Last-Event-ID"))
    there = events.give_places()
    since = there.given if wish.since is None else wish.since
    wishes.check(since, there)
    answer = stream.Stream(hubs.the(), wish, since)
    response.content_type = stream.CONTENT_TYPE
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return answer


def _look_back(wish: wishes.Wish, place: int, given: int) -> Body:
    """Gather what is wanted behind a place.

    :param given: the last place; whatever is not found until there is none of theirs
    """
    since = place
    found: list[Body] = []
    while rows := events.after(place, hubs.PAGE, wish.project_id):
        place = _gather(wish, place, rows, found)
        if len(found) == wish.limit:
            break
    else:
        place = max(place, given)
    # The oldest may have been removed while they were read: nobody is to miss them unawares.
    wishes.check(since, events.places())
    return {"events": found, "revision": place}


def _wait(wish: wishes.Wish, place: int, hub: hubs.Hub) -> Body:
    """Gather what is wanted behind a place, and wait for the first of it."""
    deadline = time.monotonic() + wish.wait
    found: list[Body] = []
    while not found:
        left = deadline - time.monotonic()
        place = _gather(wish, place, hub.behind(place, max(0.0, left)), found)
        if left <= 0 or hub.closing:
            break
    return {"events": found, "revision": place}


def _gather(wish: wishes.Wish, place: int, rows: Sequence[hubs.Row], found: list[Body]) -> int:
    """Add what is wanted of some rows, and return up to which place that is all."""
    for row in rows:
        place = row["revision"]
        found += [shown] if (shown := wish.shown(row)) else []
        if len(found) == wish.limit:
            break
    return place
