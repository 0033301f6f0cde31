# SPDX-License-Identifier: Apache-2.0
"""Dry run of the creation of an attachment: could this host attach the volume now, and why not?

Policy, the volume's other holders and status, the limits, the quota, the agent of the host, the
backend and the connector are checked with the functions that check a creation.  Nothing is stored,
and the backend grants nothing.  The answer holds for this moment: it reserves nothing.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any, Final, TypedDict, TypeVar

from attachd import exception
from attachd.api import endpoint, errors, scheduler, validation
from attachd.api.agents import presence
from attachd.api.attachments import lifecycle, policy, view
from attachd.context import RequestContext
from attachd.db.agents import orphan_devices
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.row_types import AttachmentRow
from attachd.objects import Volume
from attachd.rpc import manager_api

T = TypeVar("T")

QUERY_PARAMETERS: Final[Mapping[str, validation.Schema]] = {
    endpoint.DRY_RUN: validation.query_flag(
        "attachd 1.0. Only check whether the attachment could be created now."
    )
}
"""Schemas of the query parameters of a creation."""


class Reason(TypedDict):
    """Why an attachment cannot be created.

    :ivar code: the status with which the creation would be refused, and its message and code
    """

    code: int
    message: str
    reason_code: str


class DryRun(TypedDict):
    """The answer to a dry run.

    :ivar attach_mode: "rw" or "ro", as the host would be let in; null if it cannot attach
    :ivar reasons: why it cannot; empty if it can
    :ivar holders: the attachments that the volume has now
    """

    possible: bool
    attach_mode: str | None
    reasons: list[Reason]
    holders: list[view.Summary]


class _Checks:
    """The refusals of several checks."""

    def __init__(self) -> None:
        self.refusals: list[exception.AttachdError] = []

    def run(self, check: Callable[[], T]) -> T | None:
        """Return the result of a check; None if it refuses."""
        try:
            return check()
        except exception.AttachdError as error:
            self.refusals.append(error)
            return None


def check(ctx: RequestContext, volume: Volume, requested: Mapping[str, Any]) -> dict[str, DryRun]:
    """Return whether an attachment could be created now, and why not.

    :param requested: ``attachment`` of the body, checked like that of a creation
    :raises InvalidInput: a field is wrong
    """
    lifecycle.expiry_time(ctx, requested)
    agent = requested.get("host")
    checks = _Checks()
    fields = policy.RULES_OF_FIELDS
    for rule in (policy.CREATE, *(fields[field] for field in fields if field in requested)):
        checks.run(functools.partial(ctx.authorize, rule, volume))
    if checks.refusals:
        return _answer(checks, None, [])
    connector = requested.get("connector")
    if agent is not None:
        connector = checks.run(lambda: presence.connector(agent))
        if not volume.multiattach:
            checks.run(lambda: orphan_devices.check_nowhere_else(volume.id, agent))
    new = lifecycle.new_attachment(ctx, volume, {**requested, "connector": connector})
    values = new.columns(ctx, volume)
    preview = attachment_store.preview(
        volume.id, values, Request(Action.RESERVE, denied_rule=new.denied_rule)
    )
    mode, columns = preview.mode, None if preview.is_duplicate else values
    if preview.refusal is not None:
        checks.refusals.append(preview.refusal)
        columns = None
    if connector:
        mode = checks.run(lambda: _check_backend(ctx, volume, connector, columns)) or mode
    return _answer(checks, mode, attachment_rows.visible(preview.holders))


def _check_backend(
    ctx: RequestContext,
    volume: Volume,
    connector: dict[str, Any],
    values: dict[str, Any] | None,
) -> str | None:
    scheduler.check_reporting(volume.backend)
    return manager_api.check_attach(ctx, volume, connector, values)


def _answer(checks: _Checks, mode: str | None, holders: list[AttachmentRow]) -> dict[str, DryRun]:
    possible = not checks.refusals
    answer = DryRun(
        possible=possible,
        attach_mode=mode if possible else None,
        reasons=[
            Reason(
                code=error.code,
                message=errors.public_message(error),
                reason_code=error.reason_code(),
            )
            for error in checks.refusals
        ],
        holders=[view.summary(row) for row in holders],
    )
    return {"dry_run": answer}
