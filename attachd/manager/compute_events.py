# SPDX-License-Identifier: Apache-2.0
"""Send Compute the events that are stored for it, such as volume-extended.

The manager that has stored an event sends it at once, in a background task.  A periodic task of
each manager sends what is due then: what has failed, and what a killed process has left.
"""

from collections.abc import Callable
import datetime
from typing import Final

from oslo_log import log

from attachd import compute, exception
from attachd.conf import CONF
from attachd.db import compute_events, models
from attachd.db.compute_events import DueEvent
from attachd.manager import notify
from attachd.periodics import MAX_BACKOFF, MIN_BACKOFF

LOG = log.getLogger(__name__)

PAGE: Final = 50
"""How many events are read at once."""

MAX_ATTEMPTS: Final = 30
"""How often an event is sent: for about two hours, as pauses double up to MAX_BACKOFF."""

_REQUESTS: Final = 4
"""How many requests one attempt may need: for a token, two version documents, and the event."""

_UNANSWERED: Final = "it did not answer, or refused for a reason that its operator can change"


def recorder() -> Callable[..., None] | None:
    """Return what stores the events about a volume that grows; None: Compute is sent none."""
    return compute_events.record_extended if compute.has_credentials() else None


def reimaged_recorder() -> Callable[..., None] | None:
    """Return what stores the events about a volume with a new image, as :func:`recorder`."""
    return compute_events.record_reimaged if compute.has_credentials() else None


def send_due(volume_id: str | None = None) -> None:
    """Send the events that are due, until Compute does not answer.

    :param volume_id: only those of this volume
    :raises Unavailable: the database does not answer
    """
    events = compute_events.list_due(PAGE, volume_id)
    if not events:
        return
    try:
        sender = compute.EventSender(compute.load_credentials())
    except exception.ConfigurationError as error:
        LOG.error("Compute is not notified of volumes that have grown: %s", error)  # noqa: TRY400
        return
    for event in events:
        if not _send(sender, event):
            return


def _send(sender: compute.EventSender, event: DueEvent) -> bool:
    """Send one event, unless another process does; return whether others may succeed now."""
    if not event["is_attached"]:
        LOG.info("%s: not sent, as the server does not have the volume now", _subject(event))
        compute_events.delete(event)
        return True
    if not compute_events.claim(event, _after(_longest_attempt())):
        return True
    try:
        sender.send(event["server_id"], event["name"], event["tag"])
    except compute.EventRefused as refusal:
        if compute_events.delete(event):
            _record_refusal(event, f"{refusal}")
    except compute.Failure as failure:
        _handle_failure(event, failure)
        return not failure.is_final
    else:
        LOG.info("%s: accepted by Compute", _subject(event))
        compute_events.delete(event)
    return True


def _handle_failure(event: DueEvent, failure: compute.Failure) -> None:
    attempts = event["attempts"] + 1
    if attempts < MAX_ATTEMPTS:
        pause = min(MIN_BACKOFF * 2 ** (attempts - 1), MAX_BACKOFF)
        LOG.warning("%s: to be sent again in %d seconds: %s", _subject(event), pause, failure)
        compute_events.postpone(event, f"{failure}", _after(pause))
    elif compute_events.delete(event):
        LOG.error(
            "%s: given up after %d attempts: %s Its guest may see the former size: resize the "
            "disk with the tools of the hypervisor, or have the user stop and start the server.",
            *(_subject(event), attempts, failure),
        )
        _record_message(event, _UNANSWERED)


def _record_refusal(event: DueEvent, reason: str) -> None:
    LOG.warning(
        "%s: refused by Compute: %s. A shelved server, or one that has no host yet, sees the new "
        "size when it starts; an attachment of a server that Compute does not know is found by "
        "attachd-manage audit --compute.",
        *(_subject(event), reason),
    )
    _record_message(event, reason)


def _record_message(event: DueEvent, reason: str) -> None:
    if event["project_id"] is not None:
        place = (event["volume_id"], event["project_id"])
        notify.unannounced_growth_message(*place, event["server_id"], reason)


def _subject(event: DueEvent) -> str:
    return f"Event {event['name']} of volume {event['volume_id']} for server {event['server_id']}"


def _longest_attempt() -> float:
    one_request: float = CONF.nova.connect_timeout + CONF.nova.read_timeout
    return MIN_BACKOFF + _REQUESTS * one_request


def _after(seconds: float) -> datetime.datetime:
    return models.now() + datetime.timedelta(seconds=seconds)
