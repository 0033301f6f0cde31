# SPDX-License-Identifier: Apache-2.0
"""Which volume type is meant, and whether the caller may know it; used by types and volumes."""

from typing import Any

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import types

Row = dict[str, Any]


def by_id(ctx: RequestContext, type_id: str) -> Row:
    """Return a type.

    :raises VolumeTypeNotFound: there is none, or it is private and the caller no administrator
    """
    return _visible(ctx, types.get(type_id), type_id)


def by_id_or_name(ctx: RequestContext, wanted: str) -> Row:
    """Return a type by either; an id wins over a name that looks like it.

    :raises VolumeTypeNotFound: as :func:`by_id`
    """
    try:
        return by_id(ctx, wanted)
    except exception.VolumeTypeNotFound:
        return _visible(ctx, types.get_by_name(wanted), wanted)


def default() -> Row | None:
    """Return the type of volumes that are created without one; None if they have none.

    :raises ConfigurationError: there is no type of the configured name
    """
    name: str | None = CONF.default_volume_type
    if not name:
        return None
    try:
        return types.get_by_name(name)
    except exception.VolumeTypeNotFound:
        raise exception.ConfigurationError(
            reason=f"default_volume_type is {name!r}, and there is no volume type of that name."
        ) from None


def _visible(ctx: RequestContext, row: Row, wanted: str) -> Row:
    if not row["is_public"] and not ctx.is_admin:
        raise exception.VolumeTypeNotFound(volume_type_id=wanted)
    return row
