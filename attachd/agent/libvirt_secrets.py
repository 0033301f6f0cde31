# SPDX-License-Identifier: Apache-2.0
"""Secrets of libvirt with the keys of Compute's attachments; used by the agent of a host.

nova-compute opens no RBD image itself: libvirt does, and takes the key from a secret.  Each
attachment has one of its own, whose UUID is the id of the attachment.  It is *ephemeral*, so that
libvirt stores it on no disk, and *private*, so that no client of libvirt reads it.

libvirt forgets the secrets when it ends.  So each report compares those that exist with those
that attachments need; no journal is needed.  What no attachment needs is removed.

Source: libvirt's documentation, Secret XML format.
"""

from collections.abc import Iterable, Mapping
import re
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.agent.worker_pool import TimeboxedCall
from attachd.linux import commands
from attachd.rpc import agent_manager_api
from attachd.rpc.agent_manager_api import IN_LIBVIRT, AgentCredentials, DesiredState

LOG = log.getLogger(__name__)

NEEDED: Final[Mapping[str, str]] = {"virsh": "libvirt-clients"}
"""Packages by command."""

_TIMEOUT: Final = 20.0
_ATTEMPTS: Final = 3
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LISTED: Final = re.compile(rf"^\s*({_UUID})\s+ceph attachd-\1\s*$", re.MULTILINE)
_XML: Final = (
    "<secret ephemeral='yes' private='yes'><uuid>{id}</uuid>"
    "<description>attachd: attachment {id}</description>"
    "<usage type='ceph'><name>attachd-{id}</name></usage></secret>"
)


class LibvirtSecrets:
    """Defines and removes the secrets of one libvirt; used by any number of threads.

    :param uri: of libvirt
    """

    def __init__(self, credentials: AgentCredentials, uri: str) -> None:
        self._credentials = credentials
        self._uri = uri
        self._list_call: TimeboxedCall[set[str]] = TimeboxedCall()

    def list_ids(self) -> set[str]:
        """Return the attachments that have a secret; raises HostError."""
        return set(_LISTED.findall(self._virsh("secret-list")))

    def list_pending(
        self, desired_states: Iterable[DesiredState], timeout: float | None = None
    ) -> list[str]:
        """Return the attachments whose secrets are to be defined or removed.

        Used by one thread only.  While libvirt does not answer, none is known to exist.

        :param desired_states: all secrets of this host
        :param timeout: seconds to wait for libvirt, if that is less than usual
        """
        try:
            existing = self._list_call.run(self.list_ids, timeout)
        except exception.HostError as error:
            LOG.warning("The secrets of libvirt are unknown: %s", error)
            existing = set()
        complete = {state["attachment_id"]: state["complete"] for state in desired_states}
        pending = [id_ for id_, done in complete.items() if not done or id_ not in existing]
        return [*pending, *sorted(existing - complete.keys())]

    def reconcile(self, attachment_id: str, desired: DesiredState | None) -> None:
        """Define the secret of an attachment, or remove one that it does not need.

        :param desired: its desired state; None: it needs none
        :raises HostError: libvirt did not take it; the managers know why
        :raises Unavailable: no manager answers
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                self._bring_about(attachment_id, desired)
            except (exception.InvalidTransition, exception.AttachmentNotFound) as error:
                LOG.info("Attachment %s: the desired state has changed: %s", attachment_id, error)
                desired = agent_manager_api.desired_state(self._credentials, attachment_id)
            else:
                return
        self._bring_about(attachment_id, desired)

    def _bring_about(self, attachment_id: str, desired: DesiredState | None) -> None:
        if desired is None or desired["target_state"] != IN_LIBVIRT:
            self._remove(attachment_id)
            return
        generation = desired["generation"]
        try:
            self._define(attachment_id, desired["connection_info"]["key"])
        except exception.HostError as error:
            agent_manager_api.failed(self._credentials, attachment_id, generation, f"{error}")
            raise
        name = f"libvirt secret {attachment_id}"
        agent_manager_api.connected(self._credentials, attachment_id, generation, name)

    def _define(self, attachment_id: str, key: str) -> None:
        self._virsh("secret-define", "/dev/stdin", stdin=_XML.format(id=attachment_id))
        self._virsh("secret-set-value", attachment_id, "--file", "/dev/stdin", stdin=key)
        LOG.info("Attachment %s: defined a secret of libvirt", attachment_id)

    def _remove(self, attachment_id: str) -> None:
        """Remove a secret; devices of the host do not wait for a libvirt that does not answer."""
        try:
            if attachment_id in self.list_ids():
                self._virsh("secret-undefine", attachment_id)
                LOG.info("Attachment %s: removed its secret of libvirt", attachment_id)
        except exception.HostError as error:
            LOG.warning("Attachment %s: a secret of libvirt may stay: %s", attachment_id, error)

    def _virsh(self, *arguments: str, stdin: str | None = None) -> str:
        line = ("virsh", "--quiet", "--connect", self._uri, *arguments)
        return commands.run(*line, timeout=_TIMEOUT, stdin=stdin)
