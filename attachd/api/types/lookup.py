# SPDX-License-Identifier: Apache-2.0
"""Lookup of volume types that the caller may see, and of default types."""

from oslo_log import log
from oslo_utils import uuidutils

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.row_types import VolumeTypeRow
from attachd.db.types import default_types, type_store

LOG = log.getLogger(__name__)


def get(ctx: RequestContext, type_id: str) -> VolumeTypeRow:
    """Return a type.

    :raises VolumeTypeNotFound: there is none, or it is private and not accessible to the project
    """
    return type_store.get(type_id, _visible_to(ctx))


def get_by_id_or_name(ctx: RequestContext, name_or_id: str) -> VolumeTypeRow:
    """Return a type by id or name; an id wins over a name of the same form.

    :raises VolumeTypeNotFound: as :func:`get`
    """
    if uuidutils.is_uuid_like(name_or_id):
        try:
            return get(ctx, name_or_id)
        except exception.VolumeTypeNotFound:
            return type_store.get_by_name(name_or_id, _visible_to(ctx))
    try:
        return type_store.get_by_name(name_or_id, _visible_to(ctx))
    except exception.VolumeTypeNotFound:
        raise exception.VolumeTypeNotFound(
            f"Volume type with name {name_or_id} could not be found."
        ) from None


def default(ctx: RequestContext) -> VolumeTypeRow | None:
    """Return the type of volumes that the caller creates without one; None if there is none.

    The project's own default wins over the configured one.  It may be private: an administrator
    has chosen it for the project.

    :raises DefaultTypeMissing: there is no type of the configured name
    """
    return default_types.get_type(ctx.project_id) or configured_default()


def configured_default() -> VolumeTypeRow | None:
    """Return the type that default_volume_type names; None if it is not set.

    :raises DefaultTypeMissing: there is no such type
    """
    name: str | None = CONF.default_volume_type
    if not name:
        return None
    try:
        return type_store.get_by_name(name)
    except exception.VolumeTypeNotFound:
        raise exception.DefaultTypeMissing(name=name) from None


def is_configured_default(row: VolumeTypeRow) -> bool:
    """Return whether default_volume_type names a type."""
    return bool(row["name"] == CONF.default_volume_type)


def check_default() -> None:
    """Log a warning at the start of the API if the configured default type does not exist."""
    try:
        configured_default()
    except exception.AttachdError as error:
        # The type may be created at any time, and so may the database's tables.
        LOG.warning("Volumes cannot be created without a volume type: %s", error)


def _visible_to(ctx: RequestContext) -> str | None:
    """Return the project whose types are visible; None: those of all, for administrators."""
    return None if ctx.is_admin else ctx.project_id or ""
