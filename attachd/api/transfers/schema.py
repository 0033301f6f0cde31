# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of transfers."""

from typing import Final

from attachd.api import microversions as mv
from attachd.api.validation import BOOLEAN, NAME, TEXT, fields, wrapped

_FIELDS: Final = {
    "volume_id": {"type": "string", "format": "uuid"},
    "name": {**NAME, "type": ["string", "null"]},
}
CREATE: Final = wrapped("transfer", fields(_FIELDS, "volume_id"))
CREATE_WITH_SNAPSHOTS: Final = wrapped(
    "transfer", fields({**_FIELDS, "no_snapshots": BOOLEAN}, "volume_id")
)
VERSIONS: Final = ((mv.BASE, CREATE), (mv.TRANSFER_WITH_SNAPSHOTS, CREATE_WITH_SNAPSHOTS))

ACCEPT: Final = wrapped(
    "accept", fields({"auth_key": {**TEXT, "type": ["string", "integer"]}}, "auth_key")
)
