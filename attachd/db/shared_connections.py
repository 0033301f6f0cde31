# SPDX-License-Identifier: Apache-2.0
"""Which attachments share a connection between a host and a backend; read by the API.

A manager notes down with each connection what is equal for all that share it.  An attachment that
was made by the older calls has its connection in a row of its own, which serves it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from attachd import states
from attachd.db import api, models
from attachd.db.attachment_queries import BRIEF
from attachd.states import VISIBLE_KINDS, AttachmentState

Row = Mapping[str, Any]
_T = models.attachments

SHARING: Final = states.LIVE | states.ACCESS_UNKNOWN
"""States in which a host uses its connection, or nobody can tell that it does not."""

_OWNER = sa.func.coalesce(_T.c.serves, _T.c.id)
_KNOWN = sa.or_(_T.c.kind.in_(sorted(VISIBLE_KINDS)), _T.c.serves.is_not(None))


@api.retried
def beside(attachments: Sequence[Row], project_id: str | None) -> dict[str, list[str]]:
    """Return who else uses the connection of each of some attachments, oldest first.

    :param attachments: with ``id`` and ``volume_id``
    :param project_id: only those of this project; None: whosever they are
    :returns: ids of attachments, by the id of each of those that were asked for
    """
    if not attachments:
        return {}
    volumes = {row["volume_id"] for row in attachments}
    mine = sa.select(_T.c.connection_key).where(
        _T.c.volume_id.in_(sorted(volumes)), _T.c.connection_key.is_not(None)
    )
    wanted = (
        sa.select(_OWNER.label("owner_id"), _T.c.connection_key, _T.c.state, _T.c.project_id)
        .where(_T.c.connection_key.in_(mine), _KNOWN)
        .order_by(_T.c.created_at, _T.c.id)
    )
    keys = defaultdict(set)
    users = defaultdict(list)
    with api.reader() as connection:
        for row in connection.execute(wanted):
            if AttachmentState(row.state) not in states.INACTIVE:
                keys[row.owner_id].add(row.connection_key)
            if AttachmentState(row.state) in SHARING and project_id in {None, row.project_id}:
                users[row.connection_key].append(row.owner_id)
    return {each["id"]: _others(each["id"], keys[each["id"]], users) for each in attachments}


def _others(mine: str, keys: Collection[str], users: dict[str, list[str]]) -> list[str]:
    found = dict.fromkeys(user for key in sorted(keys) for user in users[key])
    return [each for each in found if each != mine]


@api.retried
def keys_of(attachment_id: str, volume_id: str) -> list[str]:
    """Return what is stored as equal for all that share a connection with an attachment."""
    wanted = sa.select(_T.c.connection_key).where(
        _T.c.volume_id == volume_id,
        sa.or_(_T.c.id == attachment_id, _T.c.serves == attachment_id),
        _T.c.connection_key.is_not(None),
        _T.c.state.not_in(states.INACTIVE),
    )
    with api.reader() as connection:
        return list(connection.execute(wanted).scalars())


@api.retried
def users_of(keys: Collection[str], project_id: str | None) -> list[Row]:
    """Return the attachments that use one of these connections, without secrets, oldest first.

    :param keys: as of :func:`keys_of`
    :param project_id: as of :func:`beside`
    """
    if not keys:
        return []
    owners = sa.select(_OWNER).where(
        _T.c.connection_key.in_(sorted(keys)), _T.c.state.in_(sorted(SHARING))
    )
    the = _T.alias()
    wanted = sa.select(*(the.c[column.name] for column in BRIEF)).where(
        the.c.id.in_(owners), the.c.kind.in_(sorted(VISIBLE_KINDS))
    )
    if project_id is not None:
        wanted = wanted.where(the.c.project_id == project_id)
    with api.reader() as connection:
        found = connection.execute(wanted.order_by(the.c.created_at, the.c.id))
        return [dict(row._mapping) for row in found]
