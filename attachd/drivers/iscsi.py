# SPDX-License-Identifier: Apache-2.0
"""Names of targets, accounts, hosts and units; for the drivers tgt and lvm."""

from collections.abc import Iterable, Sequence
import hashlib
import re
from typing import Any, Final
import uuid

from attachd import exception
from attachd.drivers import base

AUTHORITY: Final = "2026-01.internal.attachd"
"""The naming authority in the names of targets, after the type of the name."""

PREFIX: Final = f"iqn.{AUTHORITY}:"
"""What the names of targets begin with."""

SUFFIXES: Final[dict[base.AccessMode, str]] = {"rw": "", "ro": "-ro"}
"""Suffixes of the names of targets, by mode."""

_OWN: Final = "-for-"

_INITIATOR = re.compile(r"(iqn|eui|naa)\.[\x21-\x7e]{1,219}")
_ACCOUNTS = uuid.UUID("2d0c5e0c-6d9b-4f0e-8a53-0f8e6a3c1b74")
_HASHED = 5
# RFC 7143 asks for 96 bits at least, or 12 octets.
_MIN_SECRET = 12


def target(prefix: str, volume_id: str, mode: base.AccessMode) -> str:
    """Return the name of a volume's target; the prefix is an option."""
    return f"{prefix}{volume_id}{SUFFIXES[mode]}"


def own_target(prefix: str, volume_id: str, attachment_id: str) -> str:
    """Return the name of the target of one export, see base.Export.own_connection."""
    return f"{prefix}{volume_id}{_OWN}{attachment_id}"


def own_id(export: base.Export) -> str:
    """Return the attachment whose own target an export has; "" if exports share it."""
    return export.attachment_id if export.own_connection else ""


def target_of(prefix: str, volume_id: str, export: base.Export) -> str:
    """Return the name of the target by which an export is reached."""
    if export.own_connection:
        return own_target(prefix, volume_id, export.attachment_id)
    return target(prefix, volume_id, export.mode)


def parse_target(name: str) -> tuple[str, base.AccessMode, str]:
    """Return the volume, the mode and the attachment of a target, by its name without the prefix.

    Of a target of one export the mode is not known by the name; "ro" is returned.  Other targets
    have the attachment "".
    """
    volume_id, _own, attachment_id = name.partition(_OWN)
    reading = SUFFIXES["ro"]
    mode: base.AccessMode = "ro" if attachment_id or volume_id.endswith(reading) else "rw"
    return volume_id.removesuffix(reading), mode, attachment_id


def holders(initiator_names: Iterable[str], attachment_id: str) -> frozenset[str]:
    """Return initiators as holders, for base.BackendExport.

    :param attachment_id: of the export that has its own target, in which only it has access; "":
        the initiators have access by a target that exports share
    """
    if not attachment_id:
        return frozenset(initiator_names)
    return frozenset(f"{name} (attachment {attachment_id})" for name in initiator_names)


def own_part(attachment_id: str) -> str:
    """Return the target of one export, in service, as a part of it."""
    return f"the target of attachment {attachment_id}"


def shown_part(part: str, attachment_id: str, *, serves: bool) -> frozenset[str]:
    """Return a part of an export as it is listed; of one export alone also if it does not serve.

    Other targets of the volume are listed with it, so that it would not be noticed.
    """
    if serves:
        return frozenset({part})
    return frozenset({f"{part}, incomplete"} if attachment_id else ())


def account(target_name: str, initiator_name: str) -> str:
    """Return the CHAP user of an initiator at a target: it logs in once for all its exports."""
    return str(uuid.uuid5(_ACCOUNTS, f"{target_name} {initiator_name}"))


def is_account(user: str) -> bool:
    """Return whether a CHAP user may be a result of :func:`account`."""
    try:
        return uuid.UUID(user).version == _HASHED
    except ValueError:
        return False


def initiator(export: base.Export) -> str:
    """Return the iSCSI name in the connector, or "" if there is no valid one."""
    name = export.connector.get("initiator")
    return str(name) if is_initiator(name) else ""


def is_initiator(name: object) -> bool:
    """Return whether a connector's value is an iSCSI name."""
    return isinstance(name, str) and _INITIATOR.fullmatch(name) is not None


def invalid_initiator(name: object) -> exception.InvalidInput:
    """Return the error for a connector whose ``initiator`` is no iSCSI name."""
    return exception.InvalidInput(
        field="connector.initiator",
        value=name,
        reason="The volume is reached by iSCSI, for which the host needs an iSCSI name, "
        "such as iqn.2026-01.org.example:host.",
    )


def check_credentials(export: base.Export, initiator_name: str) -> None:
    """Check that an initiator can have an account.

    :param initiator_name: of the export; "" if there is no valid one
    :raises BackendError: final, naming what is missing
    """
    if not initiator_name or len(export.secret) < _MIN_SECRET:
        lacking = "secret" if initiator_name else "'initiator' in its connector, an iSCSI name"
        raise exception.BackendError(
            f"Attachment {export.attachment_id} has no {lacking}.", final=True
        )


def initiators(exports: Sequence[base.Export], mode: base.AccessMode) -> set[str]:
    """Return the iSCSI names of all exports that share the target of a mode, and have one."""
    return {initiator(export) for export in sharing(exports, mode)} - {""}


def sharing(exports: Sequence[base.Export], mode: base.AccessMode) -> list[base.Export]:
    """Return the exports that share the target of a mode."""
    return [export for export in exports if export.mode == mode and not export.own_connection]


def scsi_id(volume_id: str) -> str:
    """Return 32 hexadecimal digits; tgtd makes a world-wide name of the last 31 ("naa.6...").

    They never change: a host recognizes the volume by them over any connection.
    """
    try:
        return uuid.UUID(volume_id).hex
    except ValueError:
        return hashlib.sha256(volume_id.encode()).hexdigest()[:32]


def connection_info(
    volume: base.VolumeRef,
    export: base.Export,
    target_name: str,
    user: str,
    lun: int,
    portals: Sequence[str],
    *,
    discards: bool,
) -> base.ConnectionInfo:
    """Return the connection info of a target with CHAP, for os-brick's ISCSIConnector.

    :param user: the CHAP user; the password is the secret of the export
    :param portals: ADDRESS:PORT of each
    :param discards: whether the blocks that the host discards are freed
    """
    data: dict[str, Any] = {
        "target_discovered": False,
        "target_portal": portals[0],
        "target_iqn": target_name,
        "target_lun": lun,
        "volume_id": volume.id,
        "auth_method": "CHAP",
        "auth_username": user,
        "auth_password": export.secret,
        "access_mode": export.mode,
        "discard": discards,
    }
    if len(portals) > 1:
        data["target_portals"] = [*portals]
        data["target_iqns"] = [target_name] * len(portals)
        data["target_luns"] = [lun] * len(portals)
    return {"driver_volume_type": "iscsi", "data": data}
