# SPDX-License-Identifier: Apache-2.0
"""Connections that belong to no attachment yet, as the older calls make them.

These calls connect a host first, and may name the server that it is for later.  A connection is a
row of attachments that clients are not shown: it goes through the same states, flows and recovery
as any other row.
"""

from collections.abc import Collection, Sequence
from typing import Any

from attachd import states
from attachd.db.attachments import attachment_store, duplicates
from attachd.db.attachments import legacy as legacy_db
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.attachments.legacy import Creator
from attachd.db.row_types import AttachmentRow
from attachd.drivers.base import Connector
from attachd.manager import attach, detach
from attachd.manager.backends import Backend
from attachd.manager.ownership.joint_work import WorkAlone
from attachd.states import AttachmentKind


def initialize(
    backend: Backend,
    volume_id: str,
    creator: Creator,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect a host; a host that is connected already gets the same answer.

    :returns: manager_api.Connected
    :raises: as manager_api.initialize_connection()
    """
    backend.check_ready()
    backend.driver.check_connector(connector)
    request = Request(Action.INITIALIZE, connector, denied_rule=denied_rule)
    guard = attach.attach_guard(backend, request)
    with backend.volume_lease(volume_id) as volume_lease:
        try:
            transitioned = volume_lease.run_with_lease(
                lambda token: legacy_db.begin_connection(
                    volume_id, creator, connector, guard, token
                ),
            )
            return attach.run_attach_flow(backend, WorkAlone(transitioned, volume_lease))
        except duplicates.AlreadyConnected as repeated:
            return {**attach.connected_response(repeated.row), "is_repeated": True}


def terminate(
    backend: Backend,
    volume_id: str,
    connector: Connector | None,
    attachment_ids: Sequence[str] | None,
    connection_ids: Collection[str] | None = None,
) -> int:
    """Disconnect hosts that :func:`initialize` has connected, and release what they reserved.

    If no host is disconnected, no reservation is released: the call may be late, or a duplicate.
    A host that was connected for several attachments stays connected until they are detached.

    :param connector: of the host; None: all hosts
    :param attachment_ids: only connections that serve one of these attachments, or none at all;
        None: connections of all attachments, or of none
    :param connection_ids: only these; None: all
    :returns: how many connections were closed
    :raises: as manager_api.terminate_connections()
    """
    backend.check_ready()
    with backend.volume_lease(volume_id) as volume_lease:
        rows = attachment_store.list_of_volumes([volume_id])
        served = None if attachment_ids is None else {None, *attachment_ids}
        ending = [
            row
            for row in rows
            if row["kind"] == AttachmentKind.CONNECTION
            and (served is None or row["parent_id"] in served)
            and (connection_ids is None or row["id"] in connection_ids)
            and (connector is None or duplicates.is_of_host(row, connector))
        ]
        if connector is not None:
            ending = _closed_by_host(ending)
        for row in ending:
            detach.close_connection(backend, row, volume_lease, named=connector is not None)
    return len(ending)


def _closed_by_host(rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return those of a host's connections that are closed if the client names only the host."""
    live = [row for row in rows if row["state"] in states.LIVE]
    serve_several = len({row["parent_id"] for row in live}) > 1
    return [row for row in rows if not serve_several or row not in live]
