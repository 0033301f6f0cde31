# SPDX-License-Identifier: Apache-2.0
"""Options of events of attachments; the [events] group."""

from oslo_config import cfg

GROUP = "events"

OPTIONS = [
    cfg.IntOpt(
        "retention",
        default=7 * 24 * 3600,
        min=60,
        help="Seconds for which events of attachments are kept. A client that has not watched for "
        "longer has to list attachments again; a deleted attachment is shown as long.",
    ),
    cfg.FloatOpt(
        "interval",
        default=0.25,
        min=0.02,
        max=10,
        help="Seconds between two queries for new events in an API process that has watchers. A "
        "query costs one statement, for any number of watchers.",
    ),
    cfg.IntOpt(
        "max_watchers",
        default=8,
        min=0,
        help="How many clients may watch at one process of the API at the same time. Each of them "
        "occupies a thread of the web server: leave as many for all other requests. 0: none.",
    ),
    cfg.IntOpt(
        "max_watchers_per_project",
        default=4,
        min=1,
        help="How many of them one project may have, so that its clients do not occupy all.",
    ),
    cfg.IntOpt(
        "max_watchers_per_user",
        default=3,
        min=1,
        help="How many of them one user may have, in all projects together.",
    ),
    cfg.IntOpt(
        "longest_watch",
        default=60,
        min=1,
        help="Seconds after which a stream of events ends. Clients reconnect by themselves and "
        "miss no event. The graceful shutdown of a web server waits for streams, so its timeout "
        "should be longer.",
    ),
]
