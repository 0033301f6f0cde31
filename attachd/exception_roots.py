# SPDX-License-Identifier: Apache-2.0
"""What the errors have in common; everybody but their own modules finds it in exception.py."""

from typing import Any, ClassVar


class AttachdError(Exception):
    """The root; a message is built from ``msg_fmt`` and the keyword arguments.

    :cvar code: HTTP status the API answers with
    """

    code: ClassVar[int] = 500
    msg_fmt: ClassVar[str] = "Something went wrong that attachd did not foresee."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.details = details
        super().__init__(message if message is not None else self.msg_fmt % details)


class BadRequest(AttachdError):
    """The request itself is wrong: correct it and send it again."""

    code = 400
    msg_fmt = "%(reason)s"


class NotFound(AttachdError):
    """There is no such thing, or not for this project."""

    code = 404
    msg_fmt = "The resource could not be found."


class Conflict(AttachdError):
    """The state of things forbids it now; it may be allowed later."""

    code = 409
    msg_fmt = "%(reason)s"
