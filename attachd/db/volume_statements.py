# SPDX-License-Identifier: Apache-2.0
"""The statements that read volumes; executed by volumes.py and volume_queries.py."""

from typing import Any, Final

import sqlalchemy as sa

from attachd.db import models
from attachd.db.prepared import Prepared

_V = models.volumes
_M = models.volume_metadata
_TYPES = models.volume_types

WITH_TYPE: Final[sa.Select[Any]] = sa.select(
    _V, _TYPES.c.name.label("volume_type_name")
).outerjoin(_TYPES, _TYPES.c.id == _V.c.volume_type_id)
"""Volumes with the names of their types."""

_WITH_METADATA = (
    WITH_TYPE.add_columns(_M.c.key, _M.c.value)
    .outerjoin(_M, _M.c.volume_id == _V.c.id)
    .where(_V.c.id == sa.bindparam("the_id"))
)
GET: Final = Prepared(_WITH_METADATA)
"""One volume, once for each pair of its metadata."""
GET_IN_PROJECT: Final = Prepared(
    _WITH_METADATA.where(_V.c.project_id == sa.bindparam("the_project"))
)
