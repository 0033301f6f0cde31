# SPDX-License-Identifier: Apache-2.0
"""Messages to users: what went wrong after their requests had been accepted."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NotRequired, cast

from attachd.api import filters, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.links import Link, Links
from attachd.api.messages import policy, view
from attachd.context import RequestContext
from attachd.db import messages

ITEM = "/messages/{message_id}"

SORT_KEYS: Final = MappingProxyType({name: name for name in messages.SORTABLE})

Body = dict[str, Any]


class _Owner(NamedTuple):
    """Whom a message is for, as policy asks it."""

    project_id: str
    user_id: str | None = None


_DOC: Final = EndpointDoc(
    {"messages": list[view.Message], "messages_links": NotRequired[list[Link]]},
    {**paging.PAGE_PARAMETERS, **paging.ALL_PROJECTS_PARAMETER, **filters.MESSAGE.parameters},
)


@endpoint("GET", "/messages", since=mv.MESSAGES, policy=policy.GET_ALL, doc=_DOC)
def index(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version, links: Links
) -> Body:
    """Answer a page of messages; before 3.5 the parameters mean nothing."""
    asked = query if version >= mv.MESSAGES_PAGINATION else {}
    wanted = paging.read(asked, SORT_KEYS)
    found: Body = filters.requested(ctx, filters.MESSAGE, asked, version)
    project = paging.project(ctx, asked)
    if project is not None and not (ctx.is_admin and "project_id" in found):
        found["project_id"] = project
    rows = messages.page(cast("messages.Filters", found), wanted)
    answer: Body = {"messages": [view.shown(row, links) for row in rows]}
    if more := paging.next_link(links, "/messages", asked, wanted, rows):
        answer["messages_links"] = more
    return answer


@endpoint(
    "GET", ITEM, since=mv.MESSAGES, policy=policy.GET, doc=EndpointDoc({"message": view.Message})
)
def show(ctx: RequestContext, message_id: str, links: Links) -> Body:
    """Answer one message."""
    return {"message": view.shown(_load(ctx, message_id, policy.GET), links)}


@endpoint("DELETE", ITEM, since=mv.MESSAGES, policy=policy.DELETE, status=204)
def delete(ctx: RequestContext, message_id: str) -> None:
    """Remove a message before its time."""
    messages.delete(_load(ctx, message_id, policy.DELETE)["id"])


def _load(ctx: RequestContext, message_id: str, rule: str) -> messages.Row:
    row = messages.get(message_id, None if ctx.is_admin else ctx.project_id)
    ctx.authorize(rule, _Owner(row["project_id"]))
    return row
