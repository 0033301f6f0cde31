# SPDX-License-Identifier: Apache-2.0
"""Options of all attachd processes; the [DEFAULT] group."""

import socket

from oslo_config import cfg

GROUP = "DEFAULT"

OPTIONS = [
    cfg.HostAddressOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<the machine's name>",
        help="The name of this manager. All managers that serve the same backends together must "
        "have the same one.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/attachd",
        help="The directory for attachd's own files.",
    ),
    cfg.StrOpt(
        "storage_availability_zone",
        default="nova",
        help="The availability zone of the volumes of this deployment.",
    ),
    cfg.ListOpt(
        "enabled_backends",
        default=[],
        help="The backends this manager serves: names of configuration groups, each with a "
        "`driver` option of its own.",
    ),
    cfg.StrOpt(
        "default_volume_type",
        help="The volume type of a volume that was created without one. None: no type.",
    ),
]
