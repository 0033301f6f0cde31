# SPDX-License-Identifier: Apache-2.0
"""Timeouts of the database; additional options of [database], read by db.

The other options of this group are oslo.db's.
"""

from oslo_config import cfg

GROUP = "database"

OPTIONS = [
    cfg.IntOpt(
        "connect_timeout",
        default=5,
        min=1,
        help="Seconds that a connection to the database may take. Settings of the driver in "
        "connection or connection_parameters take precedence.",
    ),
    cfg.IntOpt(
        "read_timeout",
        default=20,
        min=2,
        help="Seconds without an answer after which a connection to the database is closed. A "
        "statement waits half of that time for locks; the server ends a transaction that is "
        "idle for twice that time. Settings of the driver in connection or "
        "connection_parameters take precedence.",
    ),
    cfg.IntOpt(
        "retry_timeout",
        default=10,
        min=0,
        help="Seconds after which a transaction that failed because of a lost connection or of "
        "locks is not retried: the caller gets a 503.",
    ),
]
