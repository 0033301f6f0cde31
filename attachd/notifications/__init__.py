# SPDX-License-Identifier: Apache-2.0
"""Tells whoever listens what happens to volumes and types; called by the API and the manager.

Where no driver is configured, nothing is done.  Nothing here ever fails its caller, or has it
wait for a message queue: see sender.py.
"""

from attachd.notifications.sender import enabled, flush, stop
from attachd.notifications.types import failures_of_type, type_access, type_specs, volume_type
from attachd.notifications.volumes import ATTACHMENT_COLUMNS, COLUMNS, urgent_volume, volume

__all__ = [
    "ATTACHMENT_COLUMNS",
    "COLUMNS",
    "enabled",
    "failures_of_type",
    "flush",
    "stop",
    "type_access",
    "type_specs",
    "urgent_volume",
    "volume",
    "volume_type",
]
