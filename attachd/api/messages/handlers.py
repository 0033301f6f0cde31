# SPDX-License-Identifier: Apache-2.0
"""Messages to users about failures after their requests were accepted."""

from collections.abc import Mapping
import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NotRequired, TypedDict, cast

from attachd.api import filter_register, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, Link, Links, endpoint
from attachd.api.messages import policy
from attachd.context import RequestContext
from attachd.db import messages
from attachd.db.row_types import MessageRow

ITEM = "/messages/{message_id}"
Body = dict[str, Any]


class Message(TypedDict):
    """A message to the users of a project.

    :ivar guaranteed_until: the time of its removal
    :ivar request_id: of the request that failed
    """

    id: str
    event_id: str
    user_message: str
    message_level: str
    created_at: datetime.datetime
    guaranteed_until: datetime.datetime | None
    request_id: str | None
    links: list[Link]
    resource_type: str | None
    resource_uuid: str | None


def message_view(row: MessageRow, links: Links) -> dict[str, Any]:
    """Return the representation of a message, with text for its numeric ids."""
    action = messages.ACTIONS.get(row["action_id"], "unknown action")
    words = messages.DETAILS.get(row["detail_id"], messages.DETAILS[messages.UNKNOWN])
    detail = words if row["details"] is None else words % row["details"]
    return {
        "id": row["id"],
        "event_id": row["event_id"],
        "user_message": f"{action}:{detail}",
        "message_level": row["message_level"],
        "created_at": row["created_at"],
        "guaranteed_until": row["expires_at"],
        "request_id": row["request_id"],
        "links": links.build("messages", row["id"]),
        "resource_type": row["resource_type"],
        "resource_uuid": row["resource_uuid"],
    }


SORT_KEYS: Final = MappingProxyType({name: name for name in messages.SORTABLE})


class _Owner(NamedTuple):
    """The owner of a message, as the target of policy."""

    project_id: str
    user_id: str | None = None


_DOC: Final = EndpointDoc(
    {"messages": list[Message], "messages_links": NotRequired[list[Link]]},
    {
        **paging.PAGE_PARAMETERS,
        **paging.ALL_PROJECTS_PARAMETER,
        **filter_register.MESSAGE.parameters,
    },
)


@endpoint("GET", "/messages", since=mv.MESSAGES, policy=policy.GET_ALL, doc=_DOC)
def index(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version, links: Links
) -> Body:
    """List a page of messages; before 3.5 all parameters are ignored."""
    asked = query if version >= mv.MESSAGES_PAGINATION else {}
    page_request = paging.read(asked, SORT_KEYS)
    found: Body = filter_register.requested(ctx, filter_register.MESSAGE, asked, version)
    project = paging.project(ctx, asked)
    if project is not None and not (ctx.is_admin and "project_id" in found):
        found["project_id"] = project
    rows = messages.page(cast("messages.Filters", found), page_request)
    answer: Body = {"messages": [message_view(row, links) for row in rows]}
    if more := paging.next_link(links, "/messages", asked, page_request, rows):
        answer["messages_links"] = more
    return answer


@endpoint("GET", ITEM, since=mv.MESSAGES, policy=policy.GET, doc=EndpointDoc({"message": Message}))
def show(ctx: RequestContext, message_id: str, links: Links) -> Body:
    """Show one message."""
    return {"message": message_view(_load(ctx, message_id, policy.GET), links)}


@endpoint("DELETE", ITEM, since=mv.MESSAGES, policy=policy.DELETE, status=204)
def delete(ctx: RequestContext, message_id: str) -> None:
    """Delete a message before it expires."""
    messages.delete(_load(ctx, message_id, policy.DELETE)["id"])


def _load(ctx: RequestContext, message_id: str, rule: str) -> MessageRow:
    row = messages.get(message_id, None if ctx.is_admin else ctx.project_id)
    ctx.authorize(rule, _Owner(row["project_id"]))
    return row
