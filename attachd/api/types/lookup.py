# SPDX-License-Identifier: Apache-2.0
"""Which volume type is meant, and whether the caller may know it; used by types and volumes."""

from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import default_types, types

LOG = log.getLogger(__name__)

Row = dict[str, Any]


def get(ctx: RequestContext, type_id: str) -> Row:
    """Return a type.

    :raises VolumeTypeNotFound: there is none, or it is private and not for the caller's project
    """
    return types.get(type_id, _visible_to(ctx))


def get_by_id_or_name(ctx: RequestContext, wanted: str) -> Row:
    """Return a type by either; an id wins over a name that looks like it.

    :raises VolumeTypeNotFound: as :func:`get`
    """
    if uuidutils.is_uuid_like(wanted):
        try:
            return get(ctx, wanted)
        except exception.VolumeTypeNotFound:
            return types.get_by_name(wanted, _visible_to(ctx))
    try:
        return types.get_by_name(wanted, _visible_to(ctx))
    except exception.VolumeTypeNotFound:
        raise exception.VolumeTypeNotFound(
            f"Volume type with name {wanted} could not be found."
        ) from None


def default(ctx: RequestContext) -> Row | None:
    """Return the type of volumes that the caller creates without one; None if they have none.

    It is the one of the caller's project, else the one that is configured.  It may be private:
    whoever made it the default has meant the project to have it.

    :raises DefaultTypeMissing: there is no type of the configured name
    """
    return default_types.type_of(ctx.project_id) or configured_default()


def configured_default() -> Row | None:
    """Return the type that default_volume_type names; None if it names none.

    :raises DefaultTypeMissing: there is no such type
    """
    name: str | None = CONF.default_volume_type
    if not name:
        return None
    try:
        return types.get_by_name(name)
    except exception.VolumeTypeNotFound:
        raise exception.DefaultTypeMissing(name=name) from None


def is_configured_default(row: Row) -> bool:
    """Tell whether a type is the one that default_volume_type names."""
    return bool(row["name"] == CONF.default_volume_type)


def check_default() -> None:
    """Tell the operator, when the API starts, of a default type that does not exist."""
    try:
        configured_default()
    except exception.AttachdError as error:
        # It may be created any time, and so may the database's tables.
        LOG.warning("Volumes cannot be created without naming a type: %s", error)


def _visible_to(ctx: RequestContext) -> str | None:
    """Return the project whose types are seen; None: those of all, for administrators."""
    return None if ctx.is_admin else ctx.project_id or ""
