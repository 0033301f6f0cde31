# SPDX-License-Identifier: Apache-2.0
"""Notifications about hosts that are lost, fenced or drained."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from attachd.conf import CONF
from attachd.db import host_fences
from attachd.db.host_fences import Notified
from attachd.db.row_types import HostFenceRow
from attachd.notifications import sender


class HostStep(NamedTuple):
    """What a notification has of a step.

    :ivar generation: how often the host was fenced; None: the step is none of a fence or drain
    """

    generation: int | None = None
    reason: str | None = None
    user_id: str | None = None

    @classmethod
    def from_fence(cls, row: HostFenceRow) -> Self:
        """Return what is stored of the last fence of a host."""
        return cls(row["generation"], row["reason"], row["user_id"])

    @classmethod
    def from_drain(cls, row: HostFenceRow) -> Self:
        """Return what is stored of the drain of a host."""
        return cls(row["generation"], row["drain_reason"], row["drain_user_id"])


def host(event: str, name: str, step: HostStep, **more: Any) -> None:
    """Notify of a host that is lost, fenced or drained, with priority "warn".

    :param event: what follows "host.": lost, found, unfence, drain.start, drain.end or resume
    :param more: additional fields of the payload
    """
    _send(event, name, step, more)


def fence_start(row: HostFenceRow, on_end: Callable[[], object] | None = None) -> None:
    """Notify that a host is fenced, and store that as soon as it is sent.

    :param row: of the host; the caller has claimed the notification
    :param on_end: is called in any thread, when it is sent or lost
    """
    _send(
        "fence.start",
        row["host"],
        HostStep.from_fence(row),
        {},
        _recorder(row, Notified.START, on_end),
    )


def fence_end(
    row: HostFenceRow,
    attachments: Sequence[Mapping[str, Any]],
    notified: Notified,
    on_end: Callable[[], object] | None = None,
) -> None:
    """Notify that the fence of a host waits for nothing more, and store that when it is sent.

    :param row: as of :func:`fence_start`
    :param attachments: each with its result, as the command shows it
    :param notified: what is stored
    :param on_end: as there
    """
    more = {"attachments": attachments}
    step = HostStep.from_fence(row)
    _send("fence.end", row["host"], step, more, _recorder(row, notified, on_end))


def _recorder(
    row: HostFenceRow, notified: Notified, on_end: Callable[[], object] | None
) -> Callable[[bool], None]:
    def record(is_sent: bool) -> None:  # noqa: FBT001  as Event.on_end
        try:
            if is_sent:
                host_fences.record_notified(row, notified)
        finally:
            if on_end is not None:
                on_end()

    return record


def _send(
    event: str,
    name: str,
    step: HostStep,
    more: Mapping[str, Any],
    on_end: Callable[[bool], object] | None = None,
) -> None:
    if not sender.enabled():
        return
    payload = {
        "host": name,
        **step._asdict(),
        **more,
    }
    publisher = f"host.{CONF.host}"
    sender.send(
        sender.Event(f"host.{event}", name, publisher, lambda: payload, "warn", on_end=on_end)
    )
