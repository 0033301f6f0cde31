# SPDX-License-Identifier: Apache-2.0
"""An administrator chooses the machine whose reports are those of a host; see machines.py."""

from typing import Any, Final, cast

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.agents import machines
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AgentRow

_AGENTS = models.agents
_ATTACHMENTS = models.attachments

_MAX_REFUSED: Final = 16
"""How many boot ids are refused of a host, the latest ones."""

_NAMES: Final = (
    "boot_id",
    "machine_id",
    "report_token",
    "report_process",
    "report_start",
    "report_number",
)
"""The columns about a machine; all are NULL if the next report is accepted, of any."""


@retried
def accept(host: str, boot_id: str | None, devices_gone: bool) -> str | None:  # noqa: FBT001
    """Choose the machine of a host; others are refused.

    :param boot_id: one of those that report; None: the next one that reports with the key
    :param devices_gone: whether no other machine has devices of the attachments of the host
    :returns: what was chosen, in words; None: the next one
    :raises AgentNotFound: the host is not registered
    :raises Conflict: no such machine reports, or a machine that is refused may have devices
    """
    with session.writer() as connection:
        row = _lock(connection, host)
        other = row["conflict"]
        chosen, dropped, may_have_devices = _choose(row, other, boot_id)
        may_have_devices = may_have_devices or _has_devices_of_others(connection, host, chosen)
        if may_have_devices and not devices_gone:
            _check_unused(connection, host, dropped)
        refused = [*(row["refused_boots"] or ()), *(item for item in dropped if item)]
        kept = [item for item in dict.fromkeys(refused) if item != chosen["boot_id"]]
        values = {
            **chosen,
            "content_number": None,
            "conflict": None,
            "refused_boots": kept[-_MAX_REFUSED:] or None,
        }
        if devices_gone:
            values["former_boot_at"] = None
            devices = sa.update(_ATTACHMENTS).where(_ATTACHMENTS.c.agent == host)
            connection.execute(devices.values(device_origin=None))
        connection.execute(sa.update(_AGENTS).where(_AGENTS.c.host == host).values(values))
    return f"boot {boot_id}" if boot_id else None


def _lock(connection: sa.Connection, host: str) -> AgentRow:
    statement = sa.select(_AGENTS).where(_AGENTS.c.host == host).with_for_update()
    row = connection.execute(statement).mappings().first()
    if row is None:
        raise exception.AgentNotFound(host=host)
    return cast("AgentRow", dict(row))


def _choose(
    row: AgentRow, other: dict[str, Any] | None, boot_id: str | None
) -> tuple[dict[str, Any], list[str | None], bool]:
    """Return what is to be stored of the chosen machine, whom it replaces, and whether those may
    have devices.

    :raises Conflict: no such machine reports
    """
    present = {name: row[name] for name in _NAMES}
    if other is None:
        if boot_id is None:
            return dict.fromkeys(_NAMES), [row["boot_id"]], True
        if boot_id == row["boot_id"]:
            return present, [], False
    elif other["boot_id"] == row["boot_id"] == boot_id:
        # Two agents of one machine: an administrator has stopped one of them.
        return dict.fromkeys(_NAMES), [], True
    elif boot_id == row["boot_id"]:
        return present, [other["boot_id"]], bool(other["is_known"])
    elif boot_id is not None and boot_id == other["boot_id"]:
        names = ("process", "start", "number")
        claimed = {f"report_{name}": other[name] for name in names}
        machine = {"boot_id": boot_id, "machine_id": other["machine_id"]}
        return {**machine, **claimed, "report_token": other["next"]}, [row["boot_id"]], True
    known = [row["boot_id"], *([other["boot_id"]] if other else [])]
    raise exception.Conflict(
        reason=f"The machines that report as host {row['host']} have the boot ids "
        f"{' and '.join(str(item) for item in known)}. Give one of them: attachd-manage agent "
        f"accept {row['host']} --boot BOOT_ID"
    )


def _has_devices_of_others(connection: sa.Connection, host: str, chosen: dict[str, Any]) -> bool:
    """Return whether another machine than the chosen one has reported a device of the host.

    Which one has reported before is not known of a process that was started since.
    """
    origins = sa.select(_ATTACHMENTS.c.device_origin).where(_ATTACHMENTS.c.agent == host)
    return any(
        origin is not None and machines.get_boot(origin) != chosen["boot_id"]
        for origin in connection.scalars(origins)
    )


def _check_unused(connection: sa.Connection, host: str, dropped: list[str | None]) -> None:
    """Check that a machine that is refused has no devices.

    :raises Conflict: it may have some
    """
    count = sa.select(sa.func.count()).where(_ATTACHMENTS.c.agent == host)
    number = connection.execute(count).scalar_one()
    if number:
        raise exception.Conflict(
            reason=f"Host {host} has {number} attachments, whose devices may be at the machine "
            f"with boot {', '.join(map(str, dropped)) or 'of before'}. Detach them there, or turn "
            "that machine off, and repeat the command with --devices-gone."
        )
