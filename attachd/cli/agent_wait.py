# SPDX-License-Identifier: Apache-2.0
"""What a request to detach waits for: an agent, and when that reported last; or the storage."""

import contextlib
from typing import Final

from openstack import exceptions

from attachd.cli import formatting
from attachd.cli.blockstorage import BlockStorage

ADVICE: Final = (
    "If it does not end: Ctrl-C ends the command, and the service goes on. 'attachd agent-show "
    "HOST' says what the agent does, 'attachd attachment-timeline ATTACHMENT' which step is the "
    "last one; a host that is dead is fenced: 'attachd host-fence HOST'."
)
"""What to do if an agent does not answer."""


class Deletion:
    """The deletion of an attachment, in words.

    :param attachment_id: of the attachment
    """

    def __init__(self, storage: BlockStorage, attachment_id: str) -> None:
        self._storage = storage
        self._attachment_id = attachment_id
        self._host: str | None = None
        self._is_known = False

    def __call__(self) -> str:
        """Return what it waits for now; a failure to read that is left out."""
        if not self._is_known:
            with contextlib.suppress(exceptions.SDKException):
                # Read once: the answer has secrets, and the agent of an attachment stays the same.
                self._host = self._storage.show(self._attachment_id).get("agent")
                self._is_known = True
        if self._host is None:
            return f"Waiting for the storage to end the access of attachment {self._attachment_id}"
        return describe(self._storage, self._host)


def describe(storage: BlockStorage, host: str) -> str:
    """Return what a request waits for: the agent of a host, and how old its last report is."""
    reported = ""
    with contextlib.suppress(exceptions.SDKException):  # Its user may not read agents.
        last = storage.agent(host)["last_seen"]
        if last is None:
            reported = ", which has never reported"
        else:
            reported = f", whose last report is {formatting.seconds_since(last)} s old"
    return f"Waiting for the agent of {host}{reported}"
