# SPDX-License-Identifier: Apache-2.0
"""How the API and the managers talk; the [rpc] group, read by rpcapi and service."""

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
]
