# SPDX-License-Identifier: Apache-2.0
"""How much is kept of what is still to be told; the [notifications] group, read by its sender.

Whether and where notifications go is in oslo.messaging's [oslo_messaging_notifications].
"""

from oslo_config import cfg

GROUP = "notifications"

OPTIONS = [
    cfg.IntOpt(
        "queue_size",
        default=10000,
        min=1,
        help="How many notifications one process keeps while the message queue does not take "
        "them. What comes after that is lost, and logged.",
    ),
    cfg.FloatOpt(
        "flush_timeout",
        default=5.0,
        min=0.0,
        help="Seconds that a process which ends gives the notifications that it still keeps. "
        "What is left after that is lost, and logged.",
    ),
]
