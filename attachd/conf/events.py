# SPDX-License-Identifier: Apache-2.0
"""What is told of attachments to those who watch; the [events] group."""

from oslo_config import cfg

GROUP = "events"

OPTIONS = [
    cfg.IntOpt(
        "retention",
        default=7 * 24 * 3600,
        min=60,
        help="For how long it is kept what has become of attachments, in seconds. Who has not "
        "watched for longer has to list attachments anew.",
    ),
    cfg.FloatOpt(
        "interval",
        default=0.25,
        min=0.02,
        max=10,
        help="How often a process of the API looks for what is new while somebody watches, in "
        "seconds. It costs one statement if there is nothing, however many watch.",
    ),
    cfg.IntOpt(
        "max_watchers",
        default=8,
        min=0,
        help="How many may watch at one process of the API at the same time. Each of them keeps a "
        "thread of the web server busy: leave as many for all other requests. 0: nobody may.",
    ),
    cfg.IntOpt(
        "longest_watch",
        default=60,
        min=1,
        help="Seconds after which a stream of events ends. Clients come back by themselves and "
        "miss nothing. A web server that is to end gently waits for streams: let it wait longer.",
    ),
]
