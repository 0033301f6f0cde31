# SPDX-License-Identifier: Apache-2.0
"""Which reservations have ended; read by manager/ha/purge.py."""

from typing import Any

import sqlalchemy as sa

from attachd.db import api, models
from attachd.states import AttachmentState

Row = dict[str, Any]
_T = models.attachments
_V = models.volumes

MOST = 100
"""How many are returned at once."""


@api.retried
def expired(backend: str) -> list[Row]:
    """Return reservations at ``host@backend`` that should have been connected by now.

    :returns: ``id`` and ``volume_id`` of each, the first to end first
    """
    wanted = (
        sa.select(_T.c.id, _T.c.volume_id)
        .join(_V, _V.c.id == _T.c.volume_id)
        .where(
            _T.c.expires_at <= models.now(),
            _T.c.state == AttachmentState.RESERVED.value,
            models.served_by(backend),
        )
        .order_by(_T.c.expires_at)
        .limit(MOST)
    )
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]
