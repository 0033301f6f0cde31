# SPDX-License-Identifier: Apache-2.0
"""Notifications about hosts that are lost, fenced or drained."""

from collections.abc import Mapping
from typing import Any

from attachd.conf import CONF
from attachd.notifications import sender


def host(event: str, name: str, row: Mapping[str, Any], **more: Any) -> None:
    """Notify of a host that is lost, fenced or drained, with priority "warn".

    :param event: what follows "host.": lost, found, fence.start, fence.end, unfence, drain.start,
        drain.end or resume
    :param row: the generation of the host's fences, and reason and user_id of the step
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
