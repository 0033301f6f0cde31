# SPDX-License-Identifier: Apache-2.0
"""Having attachments connected and disconnected, at once or later; used by the handlers.

At once means that the manager is asked and waited for.  Later means that the row says what is
due, and the manager is told to look at it; if that message is lost, it finds the row by itself.
"""

from collections.abc import Callable, Collection
import functools
from typing import Any

from oslo_log import log

from attachd import exception, rpcapi
from attachd.api.attachments import view
from attachd.api.preferences import Later
from attachd.context import RequestContext
from attachd.db import due
from attachd.objects import Attachment

__all__ = ["Later", "alone", "beside_others", "disconnected", "disconnected_later"]

LOG = log.getLogger(__name__)

Connector = dict[str, Any]
Shown = dict[str, view.Detail]


def beside_others(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    own: view.Own,
    later: Later | None,
) -> Shown:
    """Connect, beside others of the same server; the answer tells the state before.

    :param later: where the caller prefers not to wait: then it tells the state now
    :raises: as rpcapi.attach()
    """
    if later is not None:
        note = functools.partial(due.connect, attachment.id, attachment.volume_id, connector)
        return _later(ctx, attachment, connector, own, later, note)
    answer = rpcapi.attach(ctx, attachment, connector)
    return view.connected(ctx, attachment, answer, connector, own)


def alone(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    denied: str,
    own: view.Own,
    later: Later | None,
) -> Shown:
    """Do as :func:`beside_others`, with no other connection of an ordinary volume.

    :param denied: as of rpcapi.attach()
    """
    if later is not None:
        what = (attachment.id, attachment.volume_id, connector, denied)
        note = functools.partial(due.connect_alone, *what)
        return _later(ctx, attachment, connector, own, later, note)
    answer = rpcapi.attach_alone(ctx, attachment, connector, denied)
    return view.connected(ctx, attachment, answer, connector, own)


def _later(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    own: view.Own,
    later: Later,
    note: Callable[[], None],
) -> Shown:
    try:
        note()
    except due.Replay as replay:
        row = replay.row
        answer = rpcapi.Connected(connection_info=row["connection_info"], mode=row["mode"])
        return view.connected(ctx, attachment, answer, connector, own)
    return _accepted(ctx, attachment, own, later)


def disconnected(
    ctx: RequestContext, attachment: Attachment, among: Collection[str] | None
) -> dict[str, list[view.Summary]]:
    """Disconnect and remove an attachment; answers those that remain.

    :param among: what the guard said, where it was asked
    :raises: as rpcapi.detach()
    """
    return view.remaining(rpcapi.detach(ctx, attachment, among))


def disconnected_later(
    ctx: RequestContext,
    attachment: Attachment,
    among: Collection[str] | None,
    own: view.Own,
    later: Later,
) -> Shown:
    """Do as :func:`disconnected`, but later; answers the attachment as it is until then.

    :raises: as due.disconnect()
    """
    due.disconnect(attachment.id, attachment.volume_id, among)
    return _accepted(ctx, attachment, own, later)


def _accepted(ctx: RequestContext, attachment: Attachment, own: view.Own, later: Later) -> Shown:
    shown = view.shown(ctx, Attachment.get(ctx, attachment.id), own)
    try:
        rpcapi.carry_on(ctx, attachment)
    except exception.Unavailable as error:
        LOG.warning("Attachment %s waits for a manager to find it: %s", attachment.id, error)
    later.accept("attachments", attachment.id)
    return shown
