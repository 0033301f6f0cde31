# SPDX-License-Identifier: Apache-2.0
"""Whether a project may have more, decided in the transaction that gives it more.

Projects are locked while that is done, so that two cannot both take what is left.  In each
transaction the project's lock comes first and the volume's row second.
"""

from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models, quotas
from attachd.db.quotas import GIGABYTES, PER_VOLUME, UNLIMITED, VOLUMES

Amounts = Mapping[str, int]

_V = models.volumes
_T = models.volume_types


class Claim(NamedTuple):
    """What is asked for.

    :ivar volume_type_id: whose limits count as well; None: of no type
    :ivar size_gib: how large one volume will be
    :ivar more: how many more volumes and GiB the project will have
    :ivar more_of_type: and how many of them will be of the type
    """

    volume_type_id: str | None
    size_gib: int
    more: Amounts
    more_of_type: Amounts


def of_new_volume(volume_type_id: str | None, size_gib: int) -> Claim:
    """Return what a new volume claims."""
    more = {VOLUMES: 1, GIGABYTES: size_gib}
    return Claim(volume_type_id, size_gib, more, more)


def of_growth(volume_type_id: str | None, size_gib: int, new_size_gib: int) -> Claim:
    """Return what a volume claims that is to grow."""
    more = {GIGABYTES: new_size_gib - size_gib}
    return Claim(volume_type_id, new_size_gib, more, more)


def of_retype(new_type_id: str, size_gib: int) -> Claim:
    """Return what a volume claims that is to have another type."""
    return Claim(new_type_id, 0, {}, {VOLUMES: 1, GIGABYTES: size_gib})


@api.retried
def check(project_id: str, claim: Claim) -> None:
    """Tell, without a lock, whether a claim would be granted now; for better messages only.

    :raises QuotaExceeded: it would not
    """
    with api.reader() as connection:
        grant(connection, project_id, claim)


def grant(connection: sa.Connection, project_id: str, claim: Claim) -> None:
    """Let a claim pass that the project's limits allow; quotas.lock() has been called before.

    :raises QuotaExceeded: naming the limit, and what is used of it
    """
    limits = {**quotas.configured(), **_limits(connection, project_id, claim.volume_type_id)}
    most = limits[PER_VOLUME]
    if UNLIMITED < most < claim.size_gib:
        raise exception.VolumeSizeExceeded(size=claim.size_gib, limit=most)
    asked = {
        name: more
        for name, more in _asked(limits, claim).items()
        if more > 0 and limits[name] > UNLIMITED
    }
    used = _used(connection, project_id, claim.volume_type_id) if asked else {}
    for name in sorted(asked):
        taken = used[_kind(name)]
        if taken + asked[name] > limits[name]:
            raise exception.QuotaExceeded(
                resource=name, requested=asked[name], limit=limits[name], used=taken
            )


def _limits(
    connection: sa.Connection, project_id: str, volume_type_id: str | None
) -> dict[str, int]:
    """Return the limits that matter; the type is called what it is called at this moment."""
    names = [
        sa.select(sa.literal(f"{resource}_") + _T.c.name).where(_T.c.id == volume_type_id)
        for resource in (VOLUMES, GIGABYTES)
    ]
    everywhere = (VOLUMES, GIGABYTES, PER_VOLUME)
    return quotas.limits(connection, project_id, [everywhere, *(names if volume_type_id else ())])


def _asked(limits: Amounts, claim: Claim) -> dict[str, int]:
    """Return how much more is asked for of each resource that is limited."""
    asked = dict(claim.more)
    for name in limits:
        kind, of_type = _kind(name)
        if of_type and kind in claim.more_of_type:
            asked[name] = claim.more_of_type[kind]
    return asked


def _kind(name: str) -> tuple[str, bool]:
    """Tell what a resource is, and whether it is that of a type's volumes only."""
    for kind in (VOLUMES, GIGABYTES):
        if name.startswith(f"{kind}_"):
            return kind, True
    return name, False


def _used(
    connection: sa.Connection, project_id: str, volume_type_id: str | None
) -> dict[tuple[str, bool], int]:
    """Count, in one statement, what the project has, by :func:`_kind`."""
    gib = _V.c.size_gib + quotas.GROWING
    mine = _V.c.volume_type_id == volume_type_id
    counted = {
        (VOLUMES, False): sa.func.count(),
        (GIGABYTES, False): sa.func.sum(gib),
        (VOLUMES, True): sa.func.sum(sa.case((mine, 1), else_=0)),
        (GIGABYTES, True): sa.func.sum(sa.case((mine, gib), else_=0)),
    }
    statement = sa.select(*counted.values()).where(_V.c.project_id == project_id)
    numbers = connection.execute(statement.select_from(_V)).one()
    return {key: int(number or 0) for key, number in zip(counted, numbers, strict=True)}
