# SPDX-License-Identifier: Apache-2.0
"""Has on a host what its journal says, as after a reboot; for client.py."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry
from attachd.agent.restore import Verdict, restore_host
from attachd.client.attaching import Attaching, current_info
from attachd.client.service import FAILURES, Service


@dataclasses.dataclass(frozen=True)
class Restored:
    """What was done.

    :ivar gone: what the service had deleted, and is no longer here
    :ivar errors: why entries are not restored, by their ids
    """

    gone: list[Entry]
    errors: Mapping[str, str]


def restore(
    host: Host, service: Service, steps: Attaching, tell: Callable[[str], None]
) -> Restored:
    """Restore what was attached, then finish what was left half-way.

    :raises HostError: the journal cannot be read
    """

    def current(entry: Entry) -> dict[str, Any] | None:
        assert entry.attachment_id is not None
        remote = service.attachment(entry.attachment_id)
        return None if remote is None else current_info(entry, remote)

    gone, errors = [], {}
    for found in restore_host(host, current, tell):
        entry, error = found.entry, found.error
        if entry is None:
            tell(f"{found.path}: {found.error} End it by: {found.advice}")
            continue
        if found.verdict is Verdict.GONE:
            gone.append(entry)
        elif found.verdict in {Verdict.HALF_WAY, Verdict.LEAVING}:
            error = _finish(host, steps, entry)
        if error is not None:
            tell(f"Volume {entry.volume_id} is not as it was: {error}")
            errors[entry.id] = error
    return Restored(gone, errors)


def _finish(host: Host, steps: Attaching, entry: Entry) -> str | None:
    """Finish one that was left half-way; answers why not."""
    try:
        with host.journal.held(entry.volume_id):
            latest = host.journal.get(entry.id)
            if latest is not None:
                steps.finish(latest)
    except (exception.AttachdError, *FAILURES) as error:
        return f"{error}"
    return None
