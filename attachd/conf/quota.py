# SPDX-License-Identifier: Apache-2.0
"""Default quotas of a project; the [quota] group.

Read by db.  The options have the names of the Block Storage service.
"""

from oslo_config import cfg

GROUP = "quota"

OPTIONS = [
    cfg.IntOpt(
        "quota_volumes",
        default=10,
        min=-1,
        help="How many volumes a project may have. -1: unlimited.",
    ),
    cfg.IntOpt(
        "quota_gigabytes",
        default=1000,
        min=-1,
        help="How many GiB all volumes and snapshots of a project together may have. -1: "
        "unlimited.",
    ),
    cfg.IntOpt(
        "quota_snapshots",
        default=10,
        min=-1,
        help="How many snapshots a project may have. -1: unlimited.",
    ),
    cfg.BoolOpt(
        "no_snapshot_gb_quota",
        default=False,
        help="Whether the sizes of snapshots do not count for quota_gigabytes.",
    ),
    cfg.IntOpt(
        "per_volume_size_limit",
        default=-1,
        min=-1,
        help="How many GiB one volume may have. -1: limited by the project's quota only.",
    ),
    cfg.IntOpt(
        "quota_attachments",
        default=-1,
        min=-1,
        help="How many attachments a project may have, reservations included. -1: unlimited.",
    ),
]
