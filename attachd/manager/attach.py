# SPDX-License-Identifier: Apache-2.0
"""Connect attachments: the row before, the flow, the row after; detach.py is the reverse.

The endpoint calls it for clients, and recovery for operations that a dead manager left unfinished.
The row says what is about to happen before the driver is called, under a new generation; a caller
that loses the row meanwhile can no longer write to it.
"""

from collections.abc import Iterable, Mapping, Sequence
import secrets
import string
from typing import Any, Final, cast

from oslo_log import log

from attachd import exception, states
from attachd.db import host_identities, models
from attachd.db.agents import agent_store
from attachd.db.attachments import attachment_rows, attachment_store, connect_rules, duplicates
from attachd.db.attachments.attachment_rows import Guard, LockedVolume
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.row_types import AttachmentRow
from attachd.db.secrets import encryption
from attachd.drivers.base import AccessMode, Connector
from attachd.manager import backends, flow_runner, moves, notify
from attachd.manager.backends import Backend
from attachd.manager.flows import attachment as attachment_flows
from attachd.manager.ownership.joint_work import Begin, VolumeWork
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.states import AttachmentKind, AttachmentState, Event

LOG = log.getLogger(__name__)

# States in which an earlier try may have granted access to the host.
_MAYBE_GRANTED = frozenset({AttachmentState.CONNECTING, AttachmentState.CONNECT_UNKNOWN})

_LETTERS_AND_DIGITS: Final = string.ascii_letters + string.digits


def attach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect, beside other attachments of the same server.

    A duplicate request with the same connector gets the same answer.

    :returns: manager_api.Connected
    :raises: as manager_api.attach()
    """
    backend.driver.check_connector(connector)
    request = Request(Action.CONNECT, connector, denied_rule=denied_rule)
    return _connect(backend, attachment_id, volume_id, attach_guard(backend, request), connector)


def attach_exclusive(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect; an ordinary volume must have no other connection.

    :raises: as manager_api.attach_exclusive()
    """
    backend.driver.check_connector(connector)
    request = Request(Action.CONNECT_EXCLUSIVE, connector, denied_rule=denied_rule)
    return _connect(backend, attachment_id, volume_id, attach_guard(backend, request), connector)


def check(
    backend: Backend, volume_id: str, connector: Connector, values: Mapping[str, Any] | None
) -> str | None:
    """Do the checks of :func:`attach` for a row that is not stored, and change nothing.

    :returns: the mode of the host's access
    :raises: as manager_api.check_attach()
    """
    backend.check_ready()
    backend.driver.check_connector(connector)
    if values is None:
        return None
    preview = attachment_store.preview(volume_id, values, Request(Action.CONNECT, connector))
    if preview.refusal is not None:
        raise preview.refusal
    if not preview.is_duplicate:
        source = host_identities.get_source(
            values.get("agent"), by_service=values.get("by_service")
        )
        host_identities.check(connector, source)
    if preview.mode is not None and not preview.is_duplicate:
        backend.driver.check_access_mode(cast(AccessMode, preview.mode))
    return preview.mode


def finish_attach(backend: Backend, row: AttachmentRow) -> None:
    """Connect an attachment that was connecting when its manager died, beside all others.

    :param row: as it was read
    :raises InvalidTransition: it was changed since
    """
    resume = attach_guard(backend, Request(Action.RESUME, row["connector"]))

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_rows.check_unchanged(locked.attachment, row, Event.CONNECT)
        return resume(locked)

    _connect(backend, row["id"], row["volume_id"], guard, row["connector"] or {})


def attach_guard(backend: Backend, request: Request) -> Guard:
    """Return a guard that decides about a connect, and stores what recovery needs to repeat it.

    The guard runs under the lock of the volume's row, in the transaction of the move.

    :param request: with a connector
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        """Raise as connect_rules.decide(), and SecretUnreadable: the secret has to be kept."""
        values = connect_rules.decide(locked, request).columns()
        if request.action is not Action.RESUME:
            backend.driver.check_access_mode(values["mode"])
        values |= attachment_rows.next_generation(locked.attachment)
        values |= _secret_agent(backend, locked, request.connector or {}, values["mode"])
        if locked.attachment["move_from"] is not None:
            values |= moves.connect_columns(backend, locked, values["mode"])
        return values | _secret_columns(backend, locked, values)

    return guard


def _secret_agent(
    backend: Backend, locked: LockedVolume, connector: Connector, mode: str
) -> dict[str, Any]:
    """Return the column with the host whose agent gives libvirt the key of a connection.

    :param mode: "rw" or "ro", of the connection
    :raises Conflict: Compute could not use the connection
    """
    row, host = locked.attachment, f"{connector.get('host') or ''}"
    is_of_compute = not row["agent"] and attachment_rows.is_of_compute(row)
    if not (backend.driver.LIBVIRT_SECRETS and is_of_compute):
        return {}
    agent = agent_store.find_secret_agent(locked.connection, host)
    if agent is None and not (backend.driver.has_host_key and mode == "rw"):
        raise exception.Conflict(
            reason=f"Compute connects volume {row['volume_id']} to host {host}, and libvirt there "
            f"has no key for it: no agent of this name defines one. Run attachd-agent on the host "
            f"with [agent]host = {host} and [agent]libvirt_uri; or, to read and write with one "
            f"key for all hosts, set [{backend.name}]rbd_secret_uuid."
        )
    return {"secret_agent": agent}


def _secret_columns(
    backend: Backend, locked: LockedVolume, values: Mapping[str, Any]
) -> dict[str, Any]:
    row = locked.attachment
    granted: Any = {**row, **values}
    export = backends.export(granted)
    key = backends.connection_key(backend, backends.volume_ref(locked.volume), export)
    # A grant that may have landed is repeated with its secret; that of another host is not.
    may_exist = row["state"] in _MAYBE_GRANTED and row["connection_key"] == key
    same = [row] if may_exist else []
    secret = _kept_secret([*_sharing(key, locked.others), *same]) or _new_secret(
        backend.secret_length
    )
    return {"connection_key": key, "secret": secret}


def _new_secret(length: int) -> str:
    """Return a random text, which is a random number in the system of these digits."""
    number, base = secrets.randbelow(len(_LETTERS_AND_DIGITS) ** length), len(_LETTERS_AND_DIGITS)
    text = ""
    for _ in range(length):
        text += _LETTERS_AND_DIGITS[number % base]
        number //= base
    return text


def _kept_secret(rows: Iterable[AttachmentRow]) -> Any:
    return next((encryption.decrypted(row, "secret") for row in rows if row["secret"]), None)


def _sharing(key: str | None, others: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the attachments that share a connection, and so its secret.

    The host logs in once for all attachments, and again after a failure of the network: by then
    the attachment for which it logged in may be deleted.
    """
    return [
        row
        for row in others
        if key
        and row["connection_key"] == key
        and AttachmentState(row["state"]) in states.CONNECTOR_FIXED
    ]


def _connect(
    backend: Backend, attachment_id: str, volume_id: str, guard: Guard, connector: Connector
) -> dict[str, Any]:
    backend.check_ready()
    host = f"{connector.get('host') or ''}"
    begin = Begin(attachment_id, volume_id, Event.CONNECT, guard, host)
    try:
        with backend.work(begin) as work:
            notify.attachment_event(backend, "attach.start", work.transitioned)
            response = run_attach_flow(backend, work)
    except duplicates.AlreadyConnected as repeated:
        return {**connected_response(repeated.row), "is_repeated": True}
    notify.flush()
    return response


def run_attach_flow(backend: Backend, work: VolumeWork) -> dict[str, Any]:
    """Grant access to the host of a row that is connecting under our generation."""
    transitioned, volume_lease = work.transitioned, work.volume_lease
    row = transitioned.attachment
    volume = backends.volume_ref(transitioned.volume)
    export = backends.export_with_secret(row)
    request = attachment_flows.GrantRequest(
        backend.driver,
        volume,
        export,
        lambda: backends.live_exports(work.others()),
        lambda answer: _record_granted(work, answer),
        lambda: _must_stay_granted(row, volume_lease),
        lambda: host_identities.admit(row),
        repeated=transitioned.source in _MAYBE_GRANTED,
    )
    try:
        flow_runner.run_cached(attachment_flows.build_attach, {"request": request})
    except flow_runner.FlowFailed as failure:
        _record_failure(work, failure)
        raise _to_attachd_error(row, failure) from failure
    return connected_response(row)


def _record_granted(work: VolumeWork, answer: attachment_flows.GrantAnswer) -> None:
    granted, secrets = backends.split_secrets(answer)
    connection, row = (
        backends.with_qos(granted, work.transitioned.volume),
        work.transitioned.attachment,
    )
    assert row["mode"] is not None, "a connect decides the mode"
    info = backends.with_mode(connection, row["mode"])
    row["connection_info"] = encryption.protect(info, "connection_info", row["id"])
    values = {
        "connection_info": row["connection_info"],
        "attached_at": models.now(),
        **secrets,
    }
    work.record_granted(values)


def _must_stay_granted(row: AttachmentRow, volume_lease: VolumeLease) -> bool:
    """Return whether the host keeps its access although our connect has failed.

    If a second manager has taken the row over and connects it too, its grant is the same as ours.
    Without the lease nothing is revoked: either the end of our work was stored after all, although
    we received no answer, or another manager decides by now.  While the database does not answer,
    the grant has to stay: the row is at least connecting, and the next request finishes it.
    """
    try:
        if not volume_lease.is_held():
            return True
        current = attachment_store.get(row["id"], None)
    except exception.NotFound:
        return False
    except exception.Unavailable:
        return True
    taken_over = current["generation"] != row["generation"] and current["state"] in states.LIVE
    return taken_over or current["state"] in states.WITH_ACCESS


def _record_failure(work: VolumeWork, failure: flow_runner.FlowFailed) -> None:
    row, volume_lease = work.transitioned.attachment, work.volume_lease
    if volume_lease.may_be_taken_over():
        return
    event = Event.CONNECT_FAILED if failure.clean else Event.CONNECT_LOST
    values: dict[str, Any] = {
        "error": flow_runner.public_reason(failure.cause),
        "connection_info": None,
    }
    if failure.clean:
        values |= attachment_store.values_of_failed_connect(row)
    reason = flow_runner.reason(failure.cause)
    LOG.warning("Attachment %s: connect failed: %s", row["id"], reason)
    try:
        attachment_store.transition(
            row["id"],
            row["volume_id"],
            event,
            values,
            generation=row["generation"],
            volume_lease=volume_lease.token,
            last=work.ends_lease,
        )
    except attachment_store.TAKEOVER_ERRORS:
        LOG.warning("Attachment %s: taken over by another manager", row["id"])
    else:
        notify.attachment_message(row, event, failure.cause)


def _to_attachd_error(
    row: AttachmentRow, failure: flow_runner.FlowFailed
) -> exception.AttachdError:
    passed_on = (*attachment_store.TAKEOVER_ERRORS, exception.Unavailable, exception.HostRefused)
    if isinstance(failure.cause, passed_on):
        return failure.cause
    if row["kind"] == AttachmentKind.CONNECTION:
        details = {"volume_id": row["volume_id"], "host": row["host"]}
        kind = exception.InitializeConnectionFailed
        return flow_runner.caller_error(kind, failure.cause, **details)
    return flow_runner.caller_error(
        exception.ConnectFailed, failure.cause, attachment_id=row["id"]
    )


def connected_response(row: AttachmentRow) -> dict[str, Any]:
    """Return what callers get of a connected row: manager_api.Connected, and the row's id.

    The connection is as it is stored, which may be encrypted.
    """
    return {name: row[name] for name in ("id", "connection_info", "mode")}
