# SPDX-License-Identifier: Apache-2.0
"""Giving volumes back that were taken by the older calls and not attached; used by handlers."""

from attachd import rpcapi
from attachd.api.legacy.there import There
from attachd.context import RequestContext
from attachd.db import legacy
from attachd.objects import Volume


def as_begun(ctx: RequestContext, volume: Volume, there: There) -> None:
    """Give back what the caller has begun, with what was opened for it.

    Where nobody can tell what was opened for whom, it stays open until its host is named.
    """
    begun = there.of_whom(ctx, volume)
    alone = len(begun.holds) == 1 or not volume.multiattach
    unused = [row["id"] for row in begun.connections if row["serves"] is None]
    if unused and alone and not begun.used:
        rpcapi.close_connections(ctx, volume, None, (), unused)
    legacy.release(volume.id, begun.hold_ids[:1])


def all_of_it(ctx: RequestContext, volume: Volume, there: There) -> None:
    """Give a volume back that has no attachment, and leave nothing of what anybody has begun."""
    if there.connections:
        rpcapi.close_connections(ctx, volume, None, ())
    legacy.release(volume.id, there.hold_ids)
