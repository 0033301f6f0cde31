# SPDX-License-Identifier: Apache-2.0
"""Options of metrics for Prometheus; the [metrics] group, read by attachd.telemetry."""

from oslo_config import cfg

GROUP = "metrics"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether processes record metrics and export them over HTTP, in the format of "
        "Prometheus, at /metrics of an address of their own.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1",
        help="The address of metrics. All clients that can reach it can read them; they name "
        "backends and hosts of managers.",
    ),
    cfg.PortOpt(
        "api_port",
        default=9776,
        help="The port of the API's metrics, and of attachd-all-in-one's; 0: a free one, which "
        "the log contains.",
    ),
    cfg.PortOpt(
        "manager_port",
        default=9777,
        help="The port of a manager's metrics; 0: a free one, which the log contains.",
    ),
    cfg.FloatOpt(
        "count_interval",
        default=15.0,
        min=1.0,
        help="Seconds between two counts of the rows of the database. One manager counts for "
        "all, and each of them exports the numbers.",
    ),
]
