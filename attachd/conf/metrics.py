# SPDX-License-Identifier: Apache-2.0
"""What is told to Prometheus; the [metrics] group, read by attachd.telemetry."""

from oslo_config import cfg

GROUP = "metrics"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether processes count what they do and tell it over HTTP, in the format of "
        "Prometheus, at /metrics of an address of their own.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1",
        help="The address that metrics are told at. They are told to everybody who can reach it, "
        "and name backends and hosts of managers.",
    ),
    cfg.PortOpt(
        "api_port",
        default=9776,
        help="The port of the API's metrics, and of attachd-all-in-one's; 0: a free one, which "
        "the log tells.",
    ),
    cfg.PortOpt(
        "manager_port",
        default=9777,
        help="The port of a manager's metrics; 0: a free one, which the log tells.",
    ),
    cfg.StrOpt(
        "directory",
        help="A folder, best under /run, through which several processes on one machine - workers "
        "of the API's server, or [manager]workers - tell their metrics as one. Any of them "
        "listens, and another one when it ends. None: there is one process, and one that finds "
        "its port taken tells nothing.",
    ),
    cfg.FloatOpt(
        "count_interval",
        default=15.0,
        min=1.0,
        help="Seconds for which a manager tells again what it counted in the database last.",
    ),
    cfg.FloatOpt(
        "overdue_after",
        default=60.0,
        min=1.0,
        help="Seconds after which a volume or an attachment that is on its way from one state to "
        "another counts as overdue.",
    ),
]
