# SPDX-License-Identifier: Apache-2.0
"""All exceptions: one class for each error that a caller handles differently.

Only api/errors.py reads ``code``.
"""

import re
from typing import Any, ClassVar, Final

_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMAND: Final = re.compile(r"'[^']*' (?=failed: |did not end )")
_QUOTED_PATH: Final = re.compile(r"(?<=['\"])/[^'\"]+(?=['\"])")
_PATH: Final = re.compile(
    r"\b(?:ipc|unix|file):/+[^\s'\",;()]*[^\s'\",;:.()]"
    r"|(?<![\w./~-])/(?!/|attachments/|volumes/|v\d)[^\s'\",;()]*[^\s'\",;:.()/]"
)


def hide_paths(text: str) -> str:
    """Return a message for users: without command lines and file names of the service's machines.

    URLs of the API stay.  The log has the whole message.
    """
    text = _COMMAND.sub("A command ", text)
    return _PATH.sub("(path)", _QUOTED_PATH.sub("(path)", text))


class AttachdError(Exception):
    """The service failed unexpectedly: report it with the ID of the request.

    Base class; the message is built from ``msg_fmt`` and the keyword arguments.

    :cvar code: HTTP status that the API answers with
    """

    code: ClassVar[int] = 500
    msg_fmt: ClassVar[str] = "Something went wrong that attachd did not foresee."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.details = details
        super().__init__(message if message is not None else self.msg_fmt % details)

    @classmethod
    def reason_code(cls) -> str:
        """Return the name of the error for programs: it stays when the sentence changes.

        Source: the API-SIG's guideline on errors, ``code``; Placement's codes.
        """
        name = "InternalError" if cls is AttachdError else cls.__name__
        return f"attachd.{_CAPITAL.sub('_', name).lower()}"


class BadRequest(AttachdError):
    """The request is wrong: correct it and send it again."""

    code = 400
    msg_fmt = "%(reason)s"


class NotFound(AttachdError):
    """The resource does not exist, or belongs to another project."""

    code = 404
    msg_fmt = "The resource could not be found."


class Conflict(AttachdError):
    """The current state forbids the request; it may be allowed later."""

    code = 409
    msg_fmt = "%(reason)s"


class InvalidInput(BadRequest):
    """A field of the request is wrong; the message names it.

    Like the Block Storage API, the message has the last part of the name, which clients search
    for, and in addition the whole path, if there is one.
    """

    msg_fmt = "Invalid input for field/attribute %(name)s. Value: %(value)s. %(reason)s"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        path = str(details.get("field", ""))
        name = next((part for part in reversed(path.split(".")) if not part.isdigit()), path)
        if name != path:
            details["reason"] = f"{details['reason']} (in {path})"
        super().__init__(message, **{**details, "name": name})


class NoValidBackend(BadRequest):
    """No configured backend can serve such a volume at present."""

    msg_fmt = "No backend can serve this volume: %(reason)s"


class CapabilityMissing(NoValidBackend):
    """No backend that is up has the capabilities that the type of the volume asks for."""


class AbilityMissing(BadRequest):
    """The driver of the backend cannot do this at all."""

    msg_fmt = "The driver of backend %(backend)s does not have the ability %(ability)s."


class BackendFrozen(BadRequest):
    """An administrator froze the backend: its volumes can only be attached and detached."""

    msg_fmt = (
        "The backend is frozen: nothing is created, deleted or extended there until an "
        "administrator thaws it."
    )


class InvalidVolume(BadRequest):
    """The state of the volume does not allow the request."""

    msg_fmt = "Invalid volume: %(reason)s"


class ImageUnacceptable(BadRequest):
    """No volume can be made of the image: its format, its content or its checksum forbids it."""

    msg_fmt = "Image %(image_id)s is unacceptable: %(reason)s"


class InvalidSnapshot(BadRequest):
    """The state of the snapshot does not allow the request."""

    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidAuthKey(BadRequest):
    """The key is not that of the transfer: use the one that its creation has returned."""

    msg_fmt = "Invalid auth key: %(reason)s"


class VolumeNotAvailable(InvalidVolume):
    """Another caller holds the volume: wait, or use another volume."""

    msg_fmt = (
        "Invalid volume: Volume %(volume_id)s status must be available to reserve, "
        "but the status is %(status)s%(holder)s."
    )


class AttachmentLimitExceeded(BadRequest):
    """The limit of attachments is reached: detach one first."""

    msg_fmt = (
        "%(what)s has %(count)s attachments, and may have %(limit)s (%(name)s). Delete one of "
        "them first."
    )


class HostLimitExceeded(Conflict):
    """The host can take no more attachments: detach one there, or use another host."""

    msg_fmt = (
        "Host %(host)s has %(count)s attachments, and can take %(limit)s, as its agent reports "
        "([agent]max_attachments). Detach a volume there first, or use another host."
    )


class InvalidVolumeAttachMode(BadRequest):
    """The caller requests to write and may only read."""

    msg_fmt = (
        "Invalid attaching mode 'rw' for volume %(volume_id)s: %(reason)s. Attach it with mode "
        "'ro'."
    )


class Unauthorized(AttachdError):
    """The request has no valid credentials."""

    code = 401
    msg_fmt = "%(reason)s"


class Forbidden(AttachdError):
    """The caller's roles do not suffice."""

    code = 403
    msg_fmt = "Policy doesn't allow %(action)s to be performed."


class VolumeNotFound(NotFound):
    """The volume does not exist in this project."""

    msg_fmt = "Volume %(volume_id)s could not be found."


class SnapshotNotFound(NotFound):
    """The snapshot does not exist in this project."""

    msg_fmt = "Snapshot %(snapshot_id)s could not be found."


class TransferNotFound(NotFound):
    """There is no such transfer of a volume, or it belongs to another project."""

    msg_fmt = "Transfer %(transfer_id)s could not be found."


class AttachmentNotFound(NotFound):
    """The attachment does not exist in this project."""

    msg_fmt = (
        "Volume attachment could not be found with filter: attachment_id = %(attachment_id)s."
    )


class ResourceUnsupported(NotFound):
    """The Block Storage API has this kind of resource, and this service has none of them."""

    msg_fmt = "This service has no %(things)s."


class ImageNotFound(NotFound):
    """The image does not exist, or the Image service does not show it to the caller."""

    msg_fmt = "Image %(image_id)s could not be found."


class MarkerNotFound(NotFound):
    """The item after which a page begins does not exist any more."""

    msg_fmt = "Marker %(marker)s could not be found; start again with the first page."


class MessageNotFound(NotFound):
    """The message to users does not exist in this project."""

    msg_fmt = "Message %(message_id)s could not be found."


class VersionNotFound(NotFound):
    """The requested microversion does not have this call."""

    msg_fmt = "API version %(version)s is not supported on this method."


class NotAcceptable(AttachdError):
    """The requested version of the API does not exist."""

    code = 406
    msg_fmt = (
        "Version %(version)s is not supported by the API. Minimum is %(oldest)s and maximum is "
        "%(latest)s."
    )


class TooLarge(AttachdError):
    """The request is larger than the service accepts."""

    code = 413
    msg_fmt = "%(what)s is too large: at most %(limit)s bytes are accepted."


class QuotaExceeded(AttachdError):
    """The quota of the project does not suffice: delete a resource, or have the quota raised."""

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
            if str(details["resource"]).startswith("snapshots"):
                kind = "SnapshotLimitExceeded"
            details = {"kind": kind, **details}
        super().__init__(message, **details)


class VolumeSizeExceeded(QuotaExceeded):
    """No volume of the project may have that size."""

    msg_fmt = (
        "VolumeSizeExceedsLimit: Quota exceeded for per_volume_gigabytes: %(size)s GiB "
        "requested, and a volume may have at most %(limit)s."
    )


class UnsupportedMediaType(AttachdError):
    """The Content-Type of the request is not supported."""

    code = 415
    msg_fmt = "Unsupported Content-Type: send application/json."


class InvalidTransition(Conflict):
    """The event is illegal in the current state of the row, or another call was faster."""

    msg_fmt = "%(kind)s %(id)s is %(source)s and cannot %(event)s."


class ConnectorConflict(Conflict):
    """The attachment already connects another host."""

    msg_fmt = (
        "Attachment %(attachment_id)s already connects host %(host)s. Delete it and create "
        "another attachment for a different connector."
    )


class NotMultiattach(Conflict):
    """Another attachment of a volume that is not multiattach is connected."""

    msg_fmt = (
        "Volume %(volume_id)s is not multiattach and is already taken by %(holder)s. That has to "
        "be given up first."
    )


class HostRefused(Conflict):
    """Nothing may be attached on the host; nothing was."""


class InitiatorTaken(HostRefused):
    """An initiator of the connector belongs to another host, so that storage confuses both."""

    msg_fmt = (
        "Host %(host)s cannot attach: its initiator %(initiator)s belongs to host %(owner)s, and "
        "backends cannot distinguish both. Give this host an initiator of its own, such as in "
        "/etc/iscsi/initiatorname.iscsi or /etc/nvme/hostnqn. If it is the same machine with a "
        "new name, detach what it has as %(owner)s and remove the agent of that name, if there is "
        "one: attachd-manage agent remove %(owner)s. An administrator can also assign the "
        "initiator to this host: POST /hosts/%(host)s/claim"
    )


class HostFenced(HostRefused):
    """The host may not attach until it was started again, or an administrator lifts the fence."""

    msg_fmt = (
        "Host %(host)s is fenced since %(since)s, because: %(reason)s. When the host was checked, "
        "an administrator lifts the fence: openstack volume host unfence %(host)s"
    )


class HostDrained(HostFenced):
    """The host is out of service: attach elsewhere, or have an administrator end the drain."""

    msg_fmt = (
        "Host %(host)s is drained since %(since)s by user %(user_id)s, because: %(reason)s. "
        "Attach elsewhere, or have an administrator run: openstack volume host resume %(host)s"
    )


class AttachmentInUse(Conflict):
    """A server of Compute uses the volume: detach it there."""


class DevicePresent(Conflict):
    """The host still has the device of an attachment that no agent connects: disconnect it there.

    A server may use it.
    """

    msg_fmt = (
        "Host %(host)s still has volume %(volume_id)s as %(device)s, so attachment "
        "%(attachment_id)s is not deleted. Disconnect it on that host, as Compute does when it "
        "detaches the volume, and repeat the request. If the host cannot do that, an "
        "administrator fences it: openstack volume host fence %(host)s; or deletes it by "
        "DELETE /attachments/%(attachment_id)s?force=true in attachd 1.0."
    )


class PreconditionFailed(AttachdError):
    """Another caller was faster: read again, then decide again."""

    code = 412
    msg_fmt = "The metadata of volume %(volume_id)s has been changed since it was read."


class BackendError(AttachdError):
    """A backend call failed.

    :ivar final: True if the request surely had no effect, so that nothing has to be undone; False
        if only a retry, or an undo, shows it
    """

    msg_fmt = "Backend error: %(reason)s"

    def __init__(self, reason: str, *, final: bool = False) -> None:
        self.final = final
        super().__init__(reason=reason)


class BackendUnreachable(BackendError):
    """The backend is away or does not answer, or its manager may not change it at present.

    The call may have had effect; a later one may succeed: callers get BackendUnavailable.
    """


class BackendInUse(BackendError):
    """A program on a host has the volume open, so its access cannot be revoked yet.

    Its message says what has to be closed: callers get Conflict.
    """


class ConnectFailed(AttachdError):
    """The backend failed to connect; the attachment is in ``error_attaching``."""

    msg_fmt = (
        "Attachment %(attachment_id)s could not be connected: %(reason)s Update it to try "
        "again, or delete it."
    )


class DisconnectFailed(AttachdError):
    """The backend failed to disconnect; the attachment is in ``error_detaching``."""

    msg_fmt = (
        "Attachment %(attachment_id)s could not be disconnected: %(reason)s Delete it to try "
        "again."
    )


class MoveFailed(AttachdError):
    """The backend failed to let the destination of a move write, after its source was ended."""

    msg_fmt = "Attachment %(attachment_id)s only reads yet: %(reason)s Repeat finish_move."


class InitializeConnectionFailed(AttachdError):
    """The backend failed to connect a host for one of the older calls."""

    msg_fmt = (
        "Volume %(volume_id)s could not be connected to host %(host)s: %(reason)s Try again, or "
        "terminate the connection."
    )


class TerminateConnectionFailed(AttachdError):
    """The backend failed to disconnect; the host may still reach the volume."""

    msg_fmt = (
        "Volume %(volume_id)s could not be disconnected from host %(host)s: %(reason)s Terminate "
        "the connection to try again."
    )


class EventsExpired(AttachdError):
    """The events since that revision are purged: list attachments, and watch from there."""

    code = 410
    msg_fmt = (
        "What has happened since revision %(since)s is not known any more. List attachments anew, "
        "and watch from revision %(given)s."
    )


class Unavailable(AttachdError):
    """A dependency of attachd does not answer: try again later.

    ``retry_after=SECONDS`` overrides the configured time for the retry.
    """

    code = 503
    msg_fmt = "%(reason)s"


class DatabaseUnavailable(Unavailable):
    """The database does not answer, is too busy, or refuses to write: try again later."""


class ImageServiceUnavailable(Unavailable):
    """The Image service does not answer: try again later."""


class ImageRequestUnanswered(ImageServiceUnavailable):
    """The Image service has not answered a request that it may have executed, or may execute."""


class TooManyCalls(AttachdError):
    """The caller's own requests are too many at the same time: retry later, with fewer."""

    code = 429
    msg_fmt = "%(reason)s"


class BackendUnavailable(Unavailable):
    """The backend of the volume is away or does not answer: try again later."""


class SecretUnreadable(Unavailable):
    """A value in the database cannot be decrypted: its key is missing, or it is damaged.

    Operations that do not need the value continue, so that an attachment can be deleted and
    created again.
    """


class TakenOver(Unavailable):
    """Another manager has taken over the work; the first one's result is not recorded."""

    msg_fmt = (
        "The manager that worked on %(kind)s %(id)s did not respond, and another one has "
        "taken over. Check the resource, and repeat the call."
    )


class ManagerTimeout(AttachdError):
    """The manager did not answer in time; the resource shows the result."""

    code = 504
    msg_fmt = (
        "The volume manager of %(backend)s did not answer in time. The request may still be "
        "carried out: check %(about)s before you repeat the call."
    )


class ConfigurationError(AttachdError):
    """The configuration is invalid: correct the option that the message names."""

    msg_fmt = "%(reason)s"


class VolumeTypeNotFound(NotFound):
    """The volume type does not exist for this project."""

    msg_fmt = "Volume type %(volume_type_id)s could not be found."


class TypeExists(Conflict):
    """A volume type of that name exists."""

    msg_fmt = "Volume Type %(name)s already exists."


class TypeInUse(BadRequest):
    """Volumes or snapshots still have this type."""

    msg_fmt = (
        "Volume Type %(volume_type_id)s deletion is not allowed with volumes present with the "
        "type."
    )


class TypeIsDefault(BadRequest):
    """Volumes that are created without a type get this one."""

    msg_fmt = "The volume type %(volume_type_id)s is a default volume type and cannot be deleted."


class InvalidVolumeType(BadRequest):
    """The volume type does not allow the request."""

    msg_fmt = "Invalid volume type: %(reason)s"


class TypeAccessExists(Conflict):
    """The project has access to the volume type already."""

    msg_fmt = (
        "Volume type access for %(volume_type_id)s / %(project_id)s combination already exists."
    )


class TypeAccessNotFound(NotFound):
    """The project has no access to the volume type."""

    msg_fmt = "Volume type access not found for %(volume_type_id)s / %(project_id)s combination."


class DefaultTypeNotFound(NotFound):
    """The project has no default volume type of its own."""

    msg_fmt = "Default type for project %(project_id)s not found."


class DefaultTypeMissing(AttachdError):
    """The configured default volume type does not exist: name another one."""

    code = 503
    msg_fmt = (
        "The default volume type of this service, %(name)s, does not exist. Name a volume type, "
        "or have the operator create this one or correct default_volume_type."
    )


class QosSpecsNotFound(NotFound):
    """The QoS specs do not exist."""

    msg_fmt = "No such QoS spec %(qos_specs_id)s."


class QosSpecsExist(Conflict):
    """QoS specs of that name exist."""

    msg_fmt = "QoS Specs %(name)s already exists."


class QosSpecsInUse(BadRequest):
    """Volume types have these QoS specs: disassociate them, or delete with force."""

    msg_fmt = "Qos specs still in use."


class HostError(AttachdError):
    """An operation on this host failed; the message says what failed, and what to do next."""

    msg_fmt = "%(reason)s"


class AgentError(HostError):
    """The agent of a host reported that it failed, with its reason.

    Its code is always 500: a request with an Idempotency-Key may be repeated then.
    """


class HostHangs(HostError):
    """A process of this host was killed, and has not ended: it may still do what it has begun."""

    msg_fmt = (
        "Process %(pid)s did not end its work on the volume within %(seconds)s s, and the kernel "
        "does not end it, as a device does not answer. The volume is locked on this host until "
        "it ends: restore the path to the device, or restart the host."
    )


class MissingRequirements(HostError):
    """This host lacks a privilege, a command or a device; nothing was done.

    :ivar what: each missing requirement, by name, and where to get it
    """

    code = 409
    msg_fmt = "Host %(host)s lacks: %(what)s."


class DeviceBusy(HostError):
    """The device is in use; its users have to end first."""

    code = 409
    msg_fmt = "%(device)s is in use by %(users)s. End that, then repeat the command."


class GrowthNeedsDetach(HostError):
    """The device cannot grow while the volume is attached."""

    code = 409


class LocalConflict(HostError):
    """The journal of this host contradicts the request: see local-list."""

    code = 409


class AttachFailed(HostError):
    """A volume could not be attached, and the attempt could not be undone completely."""

    msg_fmt = (
        "Volume %(volume_id)s could not be attached (%(cause)s), and this could not be undone: "
        "%(left)s. Finish it with: %(finish)s"
    )


class DetachFailed(HostError):
    """A volume is gone from this host, and its attachment could not be deleted."""

    msg_fmt = (
        "The device of volume %(volume_id)s is gone, but its attachment could not be deleted "
        "(%(cause)s). Repeat: %(finish)s"
    )


class AgentUnavailable(Conflict):
    """The agent of a host does not report, so nothing can be attached or detached there."""

    msg_fmt = (
        "The agent of host %(host)s has not reported %(since)s. Start attachd-agent there, "
        "and repeat the call."
    )


class AgentConflict(Conflict):
    """Two machines report as the agent of one host: an administrator has to choose one."""

    msg_fmt = (
        "Two machines report as the agent of host %(host)s: boot %(boot_id)s, whose reports are "
        "accepted, and boot %(other_boot_id)s since %(since)s. One is a copy of the other, or has "
        "an older or another journal. Nothing is attached or detached there until an "
        "administrator has chosen one: attachd-manage agent accept %(host)s --boot BOOT_ID. Stop "
        "the agent of the other machine, remove its state path and its key, and give it a name of "
        "its own."
    )


class MachineRefused(Conflict):
    """An administrator has chosen another machine for the host."""

    msg_fmt = (
        "Another machine is host %(host)s: an administrator has chosen it with attachd-manage "
        "agent accept. Stop the agent of this machine (boot %(boot_id)s), remove its state path "
        "and its key, and give it a name of its own: attachd-manage agent add."
    )


class OldReport(Conflict):
    """A report is older than one that was accepted; ``start`` is that of the accepted one."""

    msg_fmt = "A later report of host %(host)s was accepted (start %(start)s of its agent)."

    @property
    def kwargs(self) -> dict[str, Any]:
        """The details, which oslo.messaging sends beside the message."""
        return self.details


class EarlyRestart(OldReport):
    """A host was started again so soon that it may be a copy of one that runs.

    ``report`` stands for the last report of its former start.
    """

    msg_fmt = (
        "Host %(host)s has reported %(silent)s s ago, by boot %(boot_id)s. The report of another "
        "boot is accepted %(needed)s s after that at the earliest: until then it may be that of a "
        "copy. The agent will retry."
    )


class ProcessNotAccepted(Conflict):
    """A call comes from a process of an agent that has not reported yet, or not any more."""

    msg_fmt = (
        "This process of the agent of host %(host)s has no accepted report yet, or another one "
        "has reported since. A process that has started is accepted with its first report: repeat "
        "the call."
    )


class AgentNotFound(NotFound):
    """This host is not registered."""

    msg_fmt = (
        "No agent of host %(host)s is known. An administrator registers hosts: attachd-manage "
        "agent add. Agents are listed by GET /agents."
    )


class AgentTimeout(AttachdError):
    """The agent did not answer in time; the attachment shows the result."""

    code = 504
    msg_fmt = (
        "The agent of host %(host)s did not answer in time. It may still carry out the request: "
        "check attachment %(attachment_id)s before you repeat the call."
    )
