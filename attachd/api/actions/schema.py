# SPDX-License-Identifier: Apache-2.0
"""What is said to a volume's actions, beside their names; used by handlers.py."""

from typing import Final

from attachd.api.fields import OPTIONAL_TEXT, SIZE, Schema, fields

EXTEND: Final = fields({"new_size": SIZE}, "new_size")

RESET: Final[Schema] = {
    **fields(dict.fromkeys(("status", "attach_status", "migration_status"), OPTIONAL_TEXT)),
    "minProperties": 1,
}
