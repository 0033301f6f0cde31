# SPDX-License-Identifier: Apache-2.0
"""What is noted down when a connect begins, if it may; used by attachments.py and connections.py.

Whether it may is said by db/connecting_rules.py.  The guards here are asked under the volume's
lock, in the transaction of the move; see db.attachment_steps.Guard.
"""

from collections.abc import Mapping, Sequence
import secrets
from typing import Any

from attachd.db import attachment_steps as steps
from attachd.db import attachments as db
from attachd.db import connecting_rules, sealing
from attachd.db.connecting_rules import BOUND, Replay, refuse_other_servers, refuse_others
from attachd.drivers.base import Connector
from attachd.manager import driver_args
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

__all__ = ["BOUND", "Replay", "begin", "begun", "refuse_other_servers", "refuse_others"]


def begin(
    backend: Backend, connector: Connector, allow: db.Guard, denied_rule: str | None = None
) -> db.Guard:
    """Return a guard that lets a connect begin and notes all that a repetition needs.

    :param denied_rule: as of manager_api.attach()
    """

    def guard(volume: db.Row, mine: db.Row, others: Sequence[db.Row]) -> Mapping[str, Any]:
        connecting_rules.check(volume, mine, others, connector, allow, denied_rule)
        return begun(backend, volume, mine, others, connector)

    return guard


def begun(
    backend: Backend,
    volume: db.Row,
    mine: db.Row,
    others: Sequence[db.Row],
    connector: Connector,
) -> dict[str, Any]:
    """Return all that is noted down when a connect begins, and that a repetition needs.

    :raises InvalidVolumeAttachMode: the host wants to write, and may only read
    :raises SecretUnreadable: there is a secret that is to stay as it is, and cannot be opened
    """
    noted = connecting_rules.noted(volume, mine, others, connector)
    values = {**noted, **steps.taken_over(mine)}
    export = driver_args.export({**mine, **values})
    key = driver_args.connection_key(backend, driver_args.volume_ref(volume), export)
    # Another host must not have what this one may know.
    kept = mine["secret"] if mine["connection_key"] == key else None
    secret = sealing.opened(_shared_secret(key, others) or kept) or secrets.token_hex(16)
    return {**values, "connection_key": key, "secret": secret}


def _shared_secret(key: str | None, others: Sequence[db.Row]) -> Any:
    """Return the secret of a connection that a host has already, or may have, as it is stored.

    The host logs in once, whatever it uses the connection for, and again after a failure of the
    network: by then the attachment for which it did may be gone.
    """
    bound = (row for row in others if key and AttachmentState(row["state"]) in BOUND)
    return next((row["secret"] for row in bound if row["connection_key"] == key), None)
