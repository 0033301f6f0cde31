# SPDX-License-Identifier: Apache-2.0
"""Spares PyMySQL reading the same description of a column again and again; used by engines.py.

MariaDB describes each column of each answer: table, name, type, length.  PyMySQL, which is
written in Python, takes longer to read these than the rows.  What describes one column is the
same bytes each time, and what was read from them is never changed.
"""

import functools
import inspect

from pymysql import connections, protocol

REMEMBERED = 4096
"""Descriptions that are kept, per process; attachd's queries have a few hundred."""


def remember() -> None:
    """Have descriptions of columns read once; where PyMySQL is not the one we know, as it was."""
    known = getattr(connections, "FieldDescriptorPacket", None)
    if known is protocol.FieldDescriptorPacket and inspect.isclass(known):
        connections.FieldDescriptorPacket = functools.lru_cache(REMEMBERED)(known)
