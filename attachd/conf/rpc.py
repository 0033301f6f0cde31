# SPDX-License-Identifier: Apache-2.0
"""Options of RPC between the API and the managers; the [rpc] group, read by rpc and service."""

from oslo_config import cfg

GROUP = "rpc"

OPTIONS = [
    cfg.StrOpt(
        "topic",
        default="attachd-manager",
        help="The topic that managers listen on, each backend under its own server name.",
    ),
    cfg.IntOpt(
        "attach_timeout",
        default=60,
        min=1,
        help="Seconds the API waits for a manager to connect or disconnect an attachment.",
    ),
    cfg.IntOpt(
        "max_calls_unresponsive",
        default=8,
        min=1,
        help="How many calls of one API process wait at the same time for a backend that has not "
        "answered for 10 seconds; further calls get a 503 at once, so that threads remain for "
        "the other backends.",
    ),
]
