# SPDX-License-Identifier: Apache-2.0
"""One class for each thing a caller can do differently; api/errors.py alone reads ``code``."""
# ruff: noqa: PLC0414  what has been moved to other files is still to be found here

from typing import Any

from attachd.exception_roots import AttachdError as AttachdError
from attachd.exception_roots import BadRequest as BadRequest
from attachd.exception_roots import Conflict as Conflict
from attachd.exception_roots import NotFound as NotFound
from attachd.host_exceptions import AgentAway as AgentAway
from attachd.host_exceptions import AgentNotFound as AgentNotFound
from attachd.host_exceptions import AgentTimeout as AgentTimeout
from attachd.host_exceptions import AttachFailed as AttachFailed
from attachd.host_exceptions import DetachFailed as DetachFailed
from attachd.host_exceptions import DeviceBusy as DeviceBusy
from attachd.host_exceptions import HostError as HostError
from attachd.host_exceptions import HostLacks as HostLacks
from attachd.host_exceptions import LocalConflict as LocalConflict
from attachd.type_exceptions import DefaultTypeMissing as DefaultTypeMissing
from attachd.type_exceptions import DefaultTypeNotFound as DefaultTypeNotFound
from attachd.type_exceptions import InvalidVolumeType as InvalidVolumeType
from attachd.type_exceptions import QosSpecsExist as QosSpecsExist
from attachd.type_exceptions import QosSpecsInUse as QosSpecsInUse
from attachd.type_exceptions import QosSpecsNotFound as QosSpecsNotFound
from attachd.type_exceptions import TypeAccessExists as TypeAccessExists
from attachd.type_exceptions import TypeAccessNotFound as TypeAccessNotFound
from attachd.type_exceptions import TypeExists as TypeExists
from attachd.type_exceptions import TypeInUse as TypeInUse
from attachd.type_exceptions import TypeIsDefault as TypeIsDefault
from attachd.type_exceptions import VolumeTypeNotFound as VolumeTypeNotFound


class InvalidInput(BadRequest):
    """A field of the request is wrong; the message names it.

    As the Block Storage API does, by its last name, which clients look for; by the names on the
    way to it as well, where there are any.
    """

    msg_fmt = "Invalid input for field/attribute %(name)s. Value: %(value)s. %(reason)s"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        path = str(details.get("field", ""))
        name = next((part for part in reversed(path.split(".")) if not part.isdigit()), path)
        if name != path:
            details["reason"] = f"{details['reason']} (in {path})"
        super().__init__(message, **{**details, "name": name})


class NoBackendFits(BadRequest):
    """No configured backend can serve such a volume at present."""

    msg_fmt = "No backend can serve this volume: %(reason)s"


class BackendFrozen(BadRequest):
    """An administrator froze the backend: its volumes can only be attached and detached."""

    msg_fmt = (
        "The backend is frozen: nothing is created, deleted or extended there until an "
        "administrator thaws it."
    )


class InvalidVolume(BadRequest):
    """The volume is in no state for what is asked of it."""

    msg_fmt = "Invalid volume: %(reason)s"


class VolumeNotFree(InvalidVolume):
    """Somebody else holds the volume: wait, or pick another one."""

    msg_fmt = (
        "Invalid volume: Volume %(volume_id)s status must be available to reserve, "
        "but the status is %(status)s%(holder)s."
    )


class LimitReached(BadRequest):
    """There are as many attachments as there may be: detach something first."""

    msg_fmt = (
        "%(what)s has %(count)s attachments, and may have %(limit)s (%(name)s). Delete one of "
        "them first."
    )


class ModeNotAllowed(BadRequest):
    """Who wants to write may only read."""

    msg_fmt = (
        "Invalid attaching mode 'rw' for volume %(volume_id)s: %(reason)s. Attach it with mode "
        "'ro'."
    )


class Unauthorized(AttachdError):
    """The caller does not say, in a way that is understood, who they are."""

    code = 401
    msg_fmt = "%(reason)s"


class Forbidden(AttachdError):
    """The caller's roles do not suffice."""

    code = 403
    msg_fmt = "Policy doesn't allow %(action)s to be performed."


class VolumeNotFound(NotFound):
    """There is no such volume for this project."""

    msg_fmt = "Volume %(volume_id)s could not be found."


class AttachmentNotFound(NotFound):
    """There is no such attachment for this project."""

    msg_fmt = (
        "Volume attachment could not be found with filter: attachment_id = %(attachment_id)s."
    )


class NotHere(NotFound):
    """The Block Storage API knows of such things, and this service has none of them."""

    msg_fmt = "This service has no %(things)s."


class MarkerNotFound(NotFound):
    """The item that a page is to begin after is not there, or no longer."""

    msg_fmt = "Marker %(marker)s could not be found; start again with the first page."


class MessageNotFound(NotFound):
    """There is no such message to users for this project."""

    msg_fmt = "Message %(message_id)s could not be found."


class VersionNotFound(NotFound):
    """The microversion asked for does not have this call."""

    msg_fmt = "API version %(version)s is not supported on this method."


class NotAcceptable(AttachdError):
    """There is no such version of the API."""

    code = 406
    msg_fmt = (
        "Version %(version)s is not supported by the API. Minimum is %(oldest)s and maximum is "
        "%(latest)s."
    )


class TooLarge(AttachdError):
    """The request is larger than the service reads."""

    code = 413
    msg_fmt = "%(what)s is too large: at most %(limit)s bytes are accepted."


class QuotaExceeded(AttachdError):
    """The project may not have that much: delete something, or have the quota raised."""

    code = 413
    msg_fmt = (
        "%(kind)s: Quota exceeded for %(resource)s: %(requested)s more requested, %(used)s of "
        "%(limit)s are used."
    )

    def __init__(self, message: str | None = None, **details: Any) -> None:
        # The words that clients look for in the messages of the Block Storage API.
        if "resource" in details:
            sized = str(details["resource"]).startswith("gigabytes")
            kind = "VolumeSizeExceedsAvailableQuota" if sized else "VolumeLimitExceeded"
            details = {"kind": kind, **details}
        super().__init__(message, **details)


class VolumeSizeExceeded(QuotaExceeded):
    """No volume of the project may be that large."""

    msg_fmt = (
        "VolumeSizeExceedsLimit: Quota exceeded for per_volume_gigabytes: %(size)s GiB "
        "requested, and a volume may have at most %(limit)s."
    )


class UnsupportedMediaType(AttachdError):
    """The request's body is of a type that is not read."""

    code = 415
    msg_fmt = "Unsupported Content-Type: send application/json."


class InvalidTransition(Conflict):
    """The row was in no state from which this event is legal, or another call was faster."""

    msg_fmt = "%(kind)s %(id)s is %(source)s and cannot %(event)s."


class ConnectorHeld(Conflict):
    """The attachment already connects another host."""

    msg_fmt = (
        "Attachment %(attachment_id)s already connects host %(host)s. Delete it and create "
        "another attachment for a different connector."
    )


class DuplicateConnector(Conflict):
    """Another attachment of an ordinary volume is connected already."""

    msg_fmt = (
        "Volume %(volume_id)s is not multiattach and is already taken by %(holder)s. That has to "
        "be given up first."
    )


class AttachmentInUse(Conflict):
    """A server of Compute uses the volume: it is detached there."""


class PreconditionFailed(AttachdError):
    """Somebody else was faster: read again, then decide again."""

    code = 412
    msg_fmt = "The metadata of volume %(volume_id)s has been changed since it was read."


class BackendError(AttachdError):
    """A backend did not do what it was asked to.

    :ivar final: True when the thing asked for surely did not happen, so that nothing has to be
        undone; False when only a retry, or an undo, can tell
    """

    msg_fmt = "Backend error: %(reason)s"

    def __init__(self, reason: str, *, final: bool = False) -> None:
        self.final = final
        super().__init__(reason=reason)


class ConnectFailed(AttachdError):
    """The backend refused or broke; the attachment stays, in ``error_attaching``."""

    msg_fmt = (
        "Attachment %(attachment_id)s could not be connected: %(reason)s Update it to try "
        "again, or delete it."
    )


class DisconnectFailed(AttachdError):
    """The backend could not be freed; the attachment stays, in ``error_detaching``."""

    msg_fmt = (
        "Attachment %(attachment_id)s could not be disconnected: %(reason)s Delete it to try "
        "again."
    )


class ConnectionNotOpened(AttachdError):
    """The backend refused or broke before a host was let in by one of the older calls."""

    msg_fmt = (
        "Volume %(volume_id)s could not be connected to host %(host)s: %(reason)s Try again, or "
        "terminate the connection."
    )


class ConnectionNotClosed(AttachdError):
    """The backend could not be freed; the host may still reach the volume."""

    msg_fmt = (
        "Volume %(volume_id)s could not be disconnected from host %(host)s: %(reason)s Terminate "
        "the connection to try again."
    )


class EventsForgotten(AttachdError):
    """What happened since then is not known any more, or not here: list, and watch from there."""

    code = 410
    msg_fmt = (
        "What has happened since revision %(since)s is not known any more. List attachments anew, "
        "and watch from revision %(given)s."
    )


class Unavailable(AttachdError):
    """Something attachd depends on does not answer: try again later.

    Who knows better than the configuration when that makes sense says ``retry_after=SECONDS``.
    """

    code = 503
    msg_fmt = "%(reason)s"


class SecretUnreadable(Unavailable):
    """Something in the database was sealed with a key that is not there, or is damaged.

    Whatever does not need it goes on, so that an attachment can be deleted and made anew.
    """


class TakenOver(Unavailable):
    """Another manager works on the volume by now; what ours did before is not written down."""

    msg_fmt = (
        "The manager that worked on volume %(volume_id)s was taken for dead, and another one has "
        "taken over. Look at the resource, and repeat the call."
    )


class ManagerTimeout(AttachdError):
    """The manager did not answer in time; what it does meanwhile shows in the resource."""

    code = 504
    msg_fmt = (
        "The volume manager of %(backend)s did not answer in time. The request may still be "
        "carried out: look at %(about)s before you repeat the call."
    )


class ConfigurationError(AttachdError):
    """The configuration cannot work: correct the option that the message names."""

    msg_fmt = "%(reason)s"


def _name_as_ours() -> None:
    """Have each of the errors say that it is of this module, by which RPC finds its class."""
    for kind in list(globals().values()):
        if isinstance(kind, type) and issubclass(kind, AttachdError):
            kind.__module__ = __name__


_name_as_ours()
