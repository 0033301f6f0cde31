# SPDX-License-Identifier: Apache-2.0
"""Notifications of changes to volumes that the API makes without the manager."""

from collections.abc import Iterator
import contextlib

from attachd import notifications
from attachd.objects import Volume


@contextlib.contextmanager
def change(volume: Volume, event: str) -> Iterator[None]:
    """Notify of the start of a change, and of its end unless an exception is raised.

    :param event: update or reset_status
    """
    before = {name: getattr(volume, name) for name in notifications.COLUMNS}
    notifications.volume(f"{event}.start", volume.id, before)
    yield
    notifications.volume(f"{event}.end", volume.id)


def retype(volume: Volume, type_id: str) -> None:
    """Notify that a volume has another type."""
    notifications.volume("retype", volume.id, {"volume_type_id": type_id})
