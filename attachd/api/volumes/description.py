# SPDX-License-Identifier: Apache-2.0
"""Changes what a volume is called and described by; used by handlers.py."""

from collections.abc import Mapping
from typing import Any

from attachd.api.volumes import telling, wishes
from attachd.db import volume_metadata, volumes
from attachd.objects import Volume


def change(volume: Volume, wanted: Mapping[str, Any]) -> None:
    """Change name, description or all metadata, and tell of it.

    :param wanted: the body's fields
    """
    with telling.of_change(volume, "update"):
        if texts := wishes.texts(wanted):
            volumes.update(volume.id, texts)
        if "metadata" in wanted:
            volume_metadata.replace(volume.id, wanted["metadata"])
