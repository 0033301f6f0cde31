# SPDX-License-Identifier: Apache-2.0
"""Moves of attachments to other hosts: ``move_from`` and ``finish_move`` in attachd 1.1.

A move is open from the creation of the destination until the access of the source has ended.
db/attachments/attachment_moves.py has its rules, manager/moves.py its end.
"""

from collections.abc import Mapping
from concurrent import futures
from typing import Any, Final

import webob

from attachd import exception
from attachd.api import detach_guard
from attachd.api.attachments import agent_detach, schema
from attachd.context import RequestContext
from attachd.db.attachments import events
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api

_POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at what another manager may have done."""


def check_field(requested: Mapping[str, Any]) -> None:
    """Check that the field may be used in a request, which has it.

    :raises InvalidInput: the request replaces an attachment as well
    """
    if "instead_of" in requested:
        raise _invalid(requested, "Give either this or attachment.instead_of.")


def resolve(ctx: RequestContext, volume: Volume, requested: dict[str, Any]) -> dict[str, Any]:
    """Return a request with what its attachment has from its source: the server, and mode "ro".

    :param volume: of the request
    :param requested: ``attachment`` of the body, with the field
    :raises AttachmentNotFound: there is no such attachment
    :raises InvalidInput: it is an attachment of another volume or server
    """
    source = Attachment.get(ctx, schema.identity(requested, "move_from"))
    if source.volume_id != volume.id:
        raise _invalid(requested, f"It is an attachment of volume {source.volume_id}.")
    resolved = {**requested, "move_from": source.id}
    if source.instance_uuid is not None:
        resolved.setdefault("instance_uuid", source.instance_uuid)
    if resolved.get("instance_uuid") != source.instance_uuid:
        raise _invalid(requested, f"It is an attachment of server {source.instance_uuid}.")
    if source.mode == "ro":
        resolved.setdefault("mode", "ro")
    return resolved


def finish(ctx: RequestContext, request: webob.Request, attachment: Attachment) -> None:
    """End the access of the source, by its agent first if it has one, and let the other write.

    A repeated request goes on where the first one ended.

    :param attachment: the destination
    :raises Conflict: it is none, or the source cannot be ended now
    :raises AttachmentInUse: Compute uses the source
    :raises: as agent_detach.release_device() and manager_api.finish_move()
    """
    if attachment.move_from is None:
        if events.has_moved(attachment.id):
            return
        raise exception.Conflict(
            reason=f"Attachment {attachment.id} is not the destination of a move: create it with "
            f"move_from."
        )
    try:
        source = Attachment.get(ctx, attachment.move_from)
    except exception.AttachmentNotFound:
        source = None
    if source is not None:
        detach_guard.check(ctx, request, source)
        agent_detach.release_device(ctx, source, None, attachment.id)
    _finish(ctx, attachment)


def _finish(ctx: RequestContext, attachment: Attachment) -> None:
    """Have a manager finish a move, or see that another one has done so: one that dies is silent.

    :raises: as manager_api.finish_move()
    """
    executor = futures.ThreadPoolExecutor(1, "move")
    try:
        call = executor.submit(manager_api.finish_move, ctx, attachment)
        while not futures.wait([call], _POLL_INTERVAL).done:
            if Attachment.get(ctx, attachment.id).move_from is None:
                return
        call.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _invalid(requested: Mapping[str, Any], reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(
        field="attachment.move_from", value=requested["move_from"], reason=reason
    )
