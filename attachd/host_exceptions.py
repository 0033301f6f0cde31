# SPDX-License-Identifier: Apache-2.0
"""The errors of a host that attaches volumes; everybody finds them in exception.py."""

from typing import Any

from attachd.exception_roots import AttachdError, Conflict, NotFound


class HostError(AttachdError):
    """This host could not do its part; the message says what, and what to do next."""

    msg_fmt = "%(reason)s"


class HostLacks(HostError):
    """This host has not what it takes: a privilege, a command, a device; nothing was begun.

    :ivar what: what is missing, each by name and where it comes from
    """

    code = 409
    msg_fmt = "Host %(host)s lacks: %(what)s."


class DeviceBusy(HostError):
    """Somebody uses the device: whoever that is has to end first."""

    code = 409
    msg_fmt = "%(device)s is in use by %(users)s. End that, then repeat the command."


class LocalConflict(HostError):
    """The journal of this host says otherwise: look at it with local-list."""

    code = 409


class AttachFailed(HostError):
    """A volume could not be attached, and a part of the attempt is still there.

    :ivar cause: why it could not be attached
    """

    msg_fmt = (
        "Volume %(volume_id)s could not be attached (%(cause)s), and this could not be undone: "
        "%(left)s. Finish it with: %(finish)s"
    )

    @property
    def cause(self) -> Any:
        """Return the error that ended the attempt."""
        return self.details.get("cause")


class DetachFailed(HostError):
    """A volume is no longer on this host, and the service still has its attachment.

    :ivar cause: why that could not be deleted
    """

    msg_fmt = (
        "The device of volume %(volume_id)s is gone, but its attachment could not be deleted "
        "(%(cause)s). Repeat: %(finish)s"
    )

    @property
    def cause(self) -> Any:
        """Return the error of the service."""
        return self.details.get("cause")


class AgentAway(Conflict):
    """The agent of a host does not report, so nothing can be attached or detached there."""

    msg_fmt = (
        "The agent of host %(host)s has not been heard of %(since)s. Start attachd-agent there, "
        "and repeat the call."
    )


class AgentNotFound(NotFound):
    """No agent of such a host has ever reported."""

    msg_fmt = (
        "No agent of host %(host)s is known. Start attachd-agent there, or name another host; "
        "agents are listed by GET /agents."
    )


class AgentTimeout(AttachdError):
    """The agent did not answer in time; what it does meanwhile shows in the attachment."""

    code = 504
    msg_fmt = (
        "The agent of host %(host)s did not answer in time. It may still do what it was asked to: "
        "look at attachment %(attachment_id)s before you repeat the call."
    )
