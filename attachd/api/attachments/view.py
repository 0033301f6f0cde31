# SPDX-License-Identifier: Apache-2.0
"""Attachments as answers show them: the same from 3.27 to the latest microversion.

Requests under attachd 1.0 get its fields.  Secrets of connections are shown only to callers that
policy allows to see them, and those of an attachment with an agent to no caller.
"""

from collections.abc import Iterable, Mapping, Sequence
import datetime
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from oslo_log import log

from attachd import exception, objects
from attachd.api import identity, policy_rules
from attachd.api import microversions as mv
from attachd.api.attachments import policy
from attachd.api.endpoint import EndpointDoc, Link
from attachd.context import RequestContext
from attachd.db.attachments import attachment_conditions, attachment_queries, events
from attachd.db.attachments.attachment_conditions import Condition
from attachd.db.attachments.deleted_attachments import DeletedAttachment
from attachd.db.row_types import AttachmentRow
from attachd.db.volumes import volume_queries
from attachd.objects import Attachment, flat_connection
from attachd.rpc import manager_api
from attachd.states import NOT_CONNECTED, AttachmentKind, AttachmentState

LOG = log.getLogger(__name__)


class Summary(TypedDict):
    """An attachment in a list.

    :ivar instance: the id of the server, or null
    """

    id: str
    status: str
    instance: str | None
    volume_id: str


class Detail(Summary):
    """An attachment by itself.

    :ivar attached_at: ``""`` until it is attached
    :ivar detached_at: ``""`` until it is deleted; only attachd 1.1 shows it then
    :ivar attach_mode: "rw", "ro", or the string "null"
    :ivar connection_info: as the driver returns it, flat; ``{}`` until there is one, and null
        for an attachment made by os-attach
    """

    attached_at: datetime.datetime | str
    detached_at: datetime.datetime | str
    attach_mode: str
    connection_info: dict[str, Any] | None


class ExtDetail(Detail):
    """The fields that attachd 1.0 adds to an attachment.

    :ivar attached_host: from the connector; null until there is one
    :ivar mountpoint: where the device is to appear, from the connector; "na" if it does not say,
        null until there is one
    :ivar expires_at: when the attachment is removed unless it is connected; null: never
    :ivar error: why it is in error_attaching or error_detaching, or the last error of its agent,
        or null
    :ivar reason_code: of that error, as in the answers with errors
    :ivar agent: the host whose agent attaches it; null: its caller does
    :ivar device: its path on that host, once it exists
    :ivar shared_connections_by_attachment: ids of others that use the same connection between
        host and backend, as far as the caller may see them
    :ivar condition: how well its host reaches the volume; null unless it is attached
    :ivar move_from: the attachment that it takes over from, until that move is finished, or null
    :ivar one_writer: whether its host only reads until then; null: it does not move, or is not
        connected
    :ivar created_at: when it was reserved
    :ivar volume_name: the name of its volume, or null
    """

    project_id: str
    attached_host: str | None
    mountpoint: str | None
    expires_at: datetime.datetime | None
    error: str | None
    reason_code: str | None
    agent: str | None
    device: str | None
    shared_connections_by_attachment: list[str]
    condition: NotRequired[Annotated[Condition | None, mv.ATTACHD_1_1]]
    move_from: NotRequired[Annotated[str | None, mv.ATTACHD_1_1]]
    one_writer: NotRequired[Annotated[bool | None, mv.ATTACHD_1_1]]
    created_at: NotRequired[Annotated[datetime.datetime | None, mv.ATTACHD_1_1]]
    volume_name: NotRequired[Annotated[str | None, mv.ATTACHD_1_1]]


_SINCE_1_1: Final = frozenset(
    name
    for name, hint in get_type_hints(ExtDetail, include_extras=True).items()
    if get_origin(hint) is NotRequired
    and mv.ATTACHD_1_1 in getattr(get_args(hint)[0], "__metadata__", ())
)
"""The fields that requests under attachd 1.0 do not get."""
LIST_EXTRAS: Final = {
    "attachments_links": NotRequired[Annotated[list[Link], mv.ATTACHD_1_0]],
    "count": NotRequired[Annotated[int, mv.ATTACHD_1_0]],
}
"""What a list may have besides the attachments."""

ONE_DOC: Final = EndpointDoc({"attachment": Detail | ExtDetail})
"""The answer with one attachment."""


class SecretVisibility:
    """Policy on the secrets of connections, asked once an owner and request.

    :param names: of the rules, all of which have to allow it
    """

    def __init__(self, ctx: RequestContext, *names: str) -> None:
        self._ctx = ctx
        self._names = names
        self._decided: dict[tuple[str, str | None], bool] = {}

    def may_see(self, project_id: str, user_id: str | None) -> bool:
        """Return whether the caller may see secrets of attachments of this project and user."""
        owner = (project_id, user_id)
        if owner not in self._decided:
            target = {"project_id": project_id, "user_id": user_id}
            allowed = (policy_rules.allows(self._ctx, name, target) for name in self._names)
            self._decided[owner] = all(allowed)
        return self._decided[owner]


AGAIN: Final = (policy.CONNECTION_INFO, policy.CONNECTION_INFO_AGAIN)
"""The rules for the secrets of a connection that was made before."""


def sharing_ids(ctx: RequestContext, rows: Sequence[AttachmentRow]) -> Mapping[str, list[str]]:
    """Return the ids of the attachments that share a connection with each of these, by its id."""
    return attachment_queries.list_sharing(rows, _scope(ctx))


class SharedConnection:
    """The connection of an attachment that is about to be deleted."""

    def __init__(self, ctx: RequestContext, attachment: Attachment) -> None:
        self._ctx = ctx
        self._attachment_id = attachment.id
        self._keys = attachment_queries.connection_keys(attachment.id, attachment.volume_id)

    def users(self) -> list[AttachmentRow]:
        """Return the rows of the attachments that still use it."""
        users = attachment_queries.list_users_of(self._keys, _scope(self._ctx))
        return [row for row in users if row["id"] != self._attachment_id]


def _scope(ctx: RequestContext) -> str | None:
    """Return the project whose attachments the caller sees; None: all.

    A service with a service token sees all: it decides for a host whether to close a connection.
    """
    return None if identity.is_service(ctx) else objects.scope(ctx)


def summary(row: AttachmentRow) -> Summary:
    """Return the fields that every list shows."""
    return {
        "id": row["id"],
        "status": AttachmentState(row["state"]).wire,
        "instance": row["instance_uuid"],
        "volume_id": row["volume_id"],
    }


def detail(row: AttachmentRow) -> Detail:
    """Return all fields of an attachment."""
    return {
        **summary(row),
        "attached_at": row["attached_at"] or "",
        "detached_at": "",
        "attach_mode": row["mode"] or "null",
        "connection_info": _connection_info(row),
    }


def _connection_info(row: AttachmentRow) -> dict[str, Any] | None:
    if not row["connection_info"]:
        # os-attach only reports an attachment: there is no connection, not even an empty one.
        return None if row["kind"] == AttachmentKind.LEGACY else {}
    return flat_connection(row)


def _readable_detail(row: AttachmentRow) -> Detail:
    """Return all fields, without the connection if it cannot be decrypted."""
    try:
        return detail(row)
    except exception.SecretUnreadable as error:
        LOG.warning("Attachment %s: shown without its connection: %s", row["id"], error)
        return detail({**row, "connection_info": None})


def show(ctx: RequestContext, attachment: Attachment) -> dict[str, Detail]:
    """Return one attachment, with secrets if the caller may see them.

    :raises SecretUnreadable: its connection cannot be decrypted
    """
    row = _row(attachment)
    return _show(SecretVisibility(ctx, *AGAIN), ctx, row, detail(row))


def show_accepted(ctx: RequestContext, attachment: Attachment) -> dict[str, Detail]:
    """Return an attachment with pending work, as :func:`show`."""
    row = _row(attachment)
    return _show(SecretVisibility(ctx, *AGAIN), ctx, row, _readable_detail(row))


def _show(
    visibility: SecretVisibility, ctx: RequestContext, row: AttachmentRow, full: Detail
) -> dict[str, Detail]:
    (full,) = _with_attachd_fields(ctx, [row], [_redacted(visibility, row, full)])
    return {"attachment": full}


def _with_attachd_fields(
    ctx: RequestContext, rows: Sequence[AttachmentRow], details: Sequence[Detail]
) -> Sequence[Detail]:
    version = ctx.attachd_version
    return details if version is None else _extend(ctx, version, rows, details)


def _extend(
    ctx: RequestContext,
    version: tuple[int, int],
    rows: Sequence[AttachmentRow],
    details: Sequence[Detail],
) -> Sequence[Detail]:
    sharing = sharing_ids(ctx, rows)
    is_newest = version >= mv.ATTACHD_1_1
    conditions = _list_conditions(rows) if is_newest else {}
    names = volume_queries.list_names(row["volume_id"] for row in rows) if is_newest else {}
    shown = [
        _ext_detail(row, full, sharing[row["id"]], conditions.get(row["id"]))
        | {"volume_name": names.get(row["volume_id"])}
        for row, full in zip(rows, details, strict=True)
    ]
    return shown if is_newest else [_as_of_attachd_1_0(item) for item in shown]


def _as_of_attachd_1_0(shown: ExtDetail) -> Detail:
    older: Any = {name: value for name, value in shown.items() if name not in _SINCE_1_1}
    full: Detail = older
    return full


def _is_one_writer(row: AttachmentRow) -> bool | None:
    if row["move_from"] is None or not row["connection_info"]:
        return None
    return bool(row["mode"] == "ro")


def _list_conditions(rows: Sequence[AttachmentRow]) -> dict[str, Condition]:
    """Return the conditions of those that are attached, by their ids."""
    attached = [row for row in rows if row["state"] == AttachmentState.ATTACHED]
    known: dict[str, Any] = {row["id"]: row["observed"] for row in attached if "observed" in row}
    if len(known) < len(attached):
        known = attachment_conditions.list_of_attachments([row["id"] for row in attached])
    return {name: item or attachment_conditions.NOT_OBSERVED for name, item in known.items()}


def _ext_detail(
    row: AttachmentRow, full: Detail, sharing: list[str], condition: Condition | None
) -> ExtDetail:
    return {
        **full,
        "project_id": row["project_id"],
        "attached_host": row["host"],
        "mountpoint": row["mountpoint"],
        "expires_at": row["expires_at"] if row["state"] in NOT_CONNECTED else None,
        "error": row["error"],
        "reason_code": _reason_code(row),
        "agent": row["agent"],
        "device": row["device"],
        "shared_connections_by_attachment": sharing,
        "condition": condition,
        "move_from": row["move_from"],
        "one_writer": _is_one_writer(row),
        "created_at": row["created_at"],
        "volume_name": None,
    }


def deleted_summary(deleted: DeletedAttachment) -> Summary:
    """Return the fields that lists show, of a deleted attachment."""
    return {
        "id": deleted.id,
        "status": events.DELETED,
        "instance": deleted.instance_uuid,
        "volume_id": deleted.volume_id,
    }


def deleted_detail(deleted: DeletedAttachment) -> ExtDetail:
    """Return a deleted attachment as it was, without its connection, for attachd 1.1."""
    return {
        **deleted_summary(deleted),
        "attached_at": deleted.attached_at or "",
        "detached_at": deleted.detached_at,
        "attach_mode": deleted.mode or "null",
        "connection_info": {},
        "project_id": deleted.project_id,
        "attached_host": deleted.host,
        "mountpoint": deleted.mountpoint,
        "expires_at": None,
        "error": None,
        "reason_code": None,
        "agent": deleted.agent,
        "device": deleted.device,
        "shared_connections_by_attachment": [],
        "condition": None,
        "move_from": None,
        "one_writer": None,
        "created_at": deleted.created_at,
        "volume_name": None,
    }


_ERRORS: Final[Mapping[str, type[exception.AttachdError]]] = MappingProxyType(
    {
        AttachmentState.CONNECT_FAILED: exception.ConnectFailed,
        AttachmentState.CONNECT_UNKNOWN: exception.ConnectFailed,
        AttachmentState.DISCONNECT_FAILED: exception.DisconnectFailed,
    }
)
"""The error of a manager in each state; in other states it is that of an agent."""


def _reason_code(row: AttachmentRow) -> str | None:
    if row["error"] is None:
        return None
    return _ERRORS.get(row["state"], exception.AgentError).reason_code()


def _redacted(visibility: SecretVisibility, row: AttachmentRow, full: Detail) -> Detail:
    # An agent gets the secrets of its host by itself: no caller needs them.
    if row["agent"] is None and visibility.may_see(row["project_id"], row["user_id"]):
        return full
    return {**full, "connection_info": objects.redact(full["connection_info"])}


def show_connected(
    ctx: RequestContext,
    attachment: Attachment,
    answer: manager_api.Connected,
    connector: Mapping[str, Any],
) -> dict[str, Detail]:
    """Return an attachment with its connection, and with its state before it was connected.

    Under attachd 1.1 the state is the present one.

    :param attachment: as it was before
    :raises AttachmentNotFound: under attachd 1.1: another request has deleted it since
    """
    if ctx.attachd_version is not None and ctx.attachd_version >= mv.ATTACHD_1_1:
        current: Any = _row(Attachment.get(ctx, attachment.id))
        full = detail(current)
    else:
        row = _row(attachment)
        current = {**row, **answer, "connector": connector, **_host_fields(connector)}
        before = detail({**row, "connection_info": None})
        full = {**before, "connection_info": _connection_info(current)}
    names = AGAIN if answer.get("is_repeated") else (policy.CONNECTION_INFO,)
    return _show(SecretVisibility(ctx, *names), ctx, current, full)


def _host_fields(connector: Mapping[str, Any]) -> dict[str, Any]:
    return {"host": connector["host"], "mountpoint": connector.get("mountpoint") or "na"}


def list_remaining(attachments: Iterable[Attachment]) -> dict[str, list[Summary]]:
    """Return the remaining attachments of a volume."""
    return {"attachments": [summary(_row(item)) for item in attachments]}


def list_summaries(rows: Iterable[AttachmentRow]) -> dict[str, list[Summary]]:
    """Return a list in short."""
    return {"attachments": [summary(row) for row in rows]}


def list_sharing(connection: SharedConnection) -> dict[str, Any]:
    """Return the attachments that use the connection of a deleted one, for attachd 1.0."""
    users = connection.users()
    return {
        **list_summaries(users),
        "shared_connections_by_attachment": [row["id"] for row in users],
    }


def list_details(
    ctx: RequestContext, rows: Sequence[AttachmentRow]
) -> dict[str, Sequence[Detail]]:
    """Return a list in full, with secrets where the caller may see them."""
    visibility = SecretVisibility(ctx, *AGAIN)
    details = [_redacted(visibility, row, _readable_detail(row)) for row in rows]
    return {"attachments": _with_attachd_fields(ctx, rows, details)}


def _row(attachment: Attachment) -> AttachmentRow:
    row: Any = attachment.to_row()
    shown: AttachmentRow = row
    return shown
