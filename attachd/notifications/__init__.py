# SPDX-License-Identifier: Apache-2.0
"""Notifications about volumes, snapshots, types and hosts; called by the API and the managers.

Without a configured driver they do nothing.  They never fail their caller, and never wait for the
message queue: see sender.py.
"""

from attachd.notifications.hosts import HostStep, fence_end, fence_start, host
from attachd.notifications.sender import enabled, flush, stop
from attachd.notifications.snapshots import snapshot
from attachd.notifications.types import failures_of_type, type_access, type_specs, volume_type
from attachd.notifications.volumes import ATTACHMENT_COLUMNS, COLUMNS, urgent_volume, volume

__all__ = [
    "ATTACHMENT_COLUMNS",
    "COLUMNS",
    "HostStep",
    "enabled",
    "failures_of_type",
    "fence_end",
    "fence_start",
    "flush",
    "host",
    "snapshot",
    "stop",
    "type_access",
    "type_specs",
    "urgent_volume",
    "volume",
    "volume_type",
]
