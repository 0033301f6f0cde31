# SPDX-License-Identifier: Apache-2.0
"""Options of the queue of notifications; the [notifications] group, read by its sender.

Drivers and topics are options of oslo.messaging's [oslo_messaging_notifications].
"""

from oslo_config import cfg

GROUP = "notifications"

OPTIONS = [
    cfg.FloatOpt(
        "flush_timeout",
        default=5.0,
        min=0.0,
        help="Seconds for which a process that ends sends queued notifications. Those that are "
        "left are lost, and logged.",
    ),
]
