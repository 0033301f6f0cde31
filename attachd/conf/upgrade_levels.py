# SPDX-License-Identifier: Apache-2.0
"""Pins of RPC versions for rolling upgrades; the [upgrade_levels] group."""

from oslo_config import cfg

GROUP = "upgrade_levels"
AUTO = "auto"

OPTIONS = [
    cfg.StrOpt(
        "attachd_manager",
        default=AUTO,
        regex=r"^(auto|1\.\d+)$",
        ignore_case=False,
        help="The version of the RPC contract that is spoken to managers, such as 1.0; objects go "
        "in the versions that belong to it. auto: of each backend, the oldest that its managers "
        "report.",
    ),
]
