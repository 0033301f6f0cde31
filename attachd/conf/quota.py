# SPDX-License-Identifier: Apache-2.0
"""How much a project may have unless somebody set it otherwise; the [quota] group.

Read by db.quotas.  The options have the names that the Block Storage service's have.
"""

from oslo_config import cfg

GROUP = "quota"

OPTIONS = [
    cfg.IntOpt(
        "quota_volumes",
        default=10,
        min=-1,
        help="How many volumes a project may have. -1: as many as it likes.",
    ),
    cfg.IntOpt(
        "quota_gigabytes",
        default=1000,
        min=-1,
        help="How many GiB all volumes of a project together may have. -1: as many as it likes.",
    ),
    cfg.IntOpt(
        "per_volume_size_limit",
        default=-1,
        min=-1,
        help="How many GiB one volume may have. -1: as many as its project may.",
    ),
]
