# SPDX-License-Identifier: Apache-2.0
"""How long the database may keep somebody waiting; more of [database], read by db.

The other options of this group are oslo.db's, see db/api.py.
"""

from oslo_config import cfg

GROUP = "database"

OPTIONS = [
    cfg.IntOpt(
        "connect_timeout",
        default=5,
        min=1,
        help="Seconds that a connection to the database may take. What connection or "
        "connection_parameters say to the driver goes before.",
    ),
    cfg.IntOpt(
        "read_timeout",
        default=20,
        min=2,
        help="Seconds that the database may be silent before its connection is given up. For half "
        "of it a statement waits for the locks of others; the server ends what has been in the "
        "middle of a transaction for twice as long without a word. What connection or "
        "connection_parameters say to the driver goes before.",
    ),
    cfg.IntOpt(
        "retry_timeout",
        default=10,
        min=0,
        help="Seconds after which a transaction that has met a dead connection or the locks of "
        "others is not tried again: the caller gets a 503.",
    ),
]
