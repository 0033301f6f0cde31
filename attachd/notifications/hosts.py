# SPDX-License-Identifier: Apache-2.0
"""Notifications about hosts that are fenced."""

from collections.abc import Mapping
from typing import Any

from attachd.conf import CONF
from attachd.notifications import sender


def host(event: str, name: str, row: Mapping[str, Any], **more: Any) -> None:
    """Notify of a fence, with priority "warn".

    :param event: what follows "host.": fence.start, fence.end or unfence
    :param row: of db.host_fences
    :param more: additional fields of the payload
    """
    if not sender.enabled():
        return
    payload = {
        "host": name,
        "generation": row["generation"],
        "reason": row["reason"],
        "user_id": row["user_id"],
        **more,
    }
    sender.send(sender.Event(f"host.{event}", name, f"host.{CONF.host}", lambda: payload, "warn"))
