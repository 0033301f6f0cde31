# SPDX-License-Identifier: Apache-2.0
"""Tells what requests do to volumes by themselves; called by handlers of volumes and actions.

What a manager does for them is told by the manager.
"""

from collections.abc import Iterator
import contextlib

from attachd import notifications
from attachd.objects import Volume


@contextlib.contextmanager
def change(volume: Volume, change: str) -> Iterator[None]:
    """Tell that a volume begins to change, and, unless something is raised, that it has.

    :param change: update or reset_status
    """
    before = {name: getattr(volume, name) for name in notifications.COLUMNS}
    notifications.volume(f"{change}.start", volume.id, before)
    yield
    notifications.volume(f"{change}.end", volume.id)


def retype(volume: Volume, type_id: str) -> None:
    """Tell that a volume has another type."""
    notifications.volume("retype", volume.id, {"volume_type_id": type_id})
