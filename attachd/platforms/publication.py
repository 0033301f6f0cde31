# SPDX-License-Identifier: Apache-2.0
"""Publication of volumes at nodes: attachments by host name, which agents carry out.

attachd enforces by itself that a volume that is not multiattach has one holder.  For others, what
a capability permits is checked before the attachment is created and again after it: of two calls
at the same time at least one sees the other, and takes its attachment back.
"""

import enum
import http
import logging
from typing import Final, NamedTuple

from attachd.platforms import waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.storage import Storage, StoredAttachment, StoredVolume
from attachd.platforms.volume_locks import VolumeLocks

LOG = logging.getLogger(__name__)

_CONNECTING: Final = frozenset({"reserved", "attaching"})
_FAILED: Final = "error_attaching"
_HELD: Final = frozenset({"volume_not_available", "not_multiattach", "invalid_volume"})
_LOST_REQUEST: Final = 60.0
"""Seconds after which a reservation is one whose request has died."""


class Fence(enum.StrEnum):
    """When a node whose agent is silent is fenced, so that its volumes are free."""

    PROVED = "proved"
    """If the backend of the volume proves that the node has no access any more."""
    ASSERTED = "asserted"
    """Also if the backend says so without a proof."""
    NEVER = "never"


_SUFFICIENT: Final = {
    Fence.PROVED: frozenset({"proved"}),
    Fence.ASSERTED: frozenset({"proved", "asserted"}),
    Fence.NEVER: frozenset[str](),
}


class HeldElsewhere(CallError):
    """Other nodes, or clients beside agents, hold a volume.

    :ivar nodes: names of the hosts that are known
    """

    def __init__(self, volume: StoredVolume, holders: list[StoredAttachment]) -> None:
        self.nodes = sorted({item.host for item in holders if item.host})
        named = [f"node {node}" for node in self.nodes]
        rest = [f"attachment {item.id}" for item in holders if not item.host]
        super().__init__(
            ErrorCode.FAILED_PRECONDITION,
            f"Volume {volume.id} is published to {', '.join([*named, *rest])}.",
        )


class Publication(NamedTuple):
    """A volume at a node.

    :ivar mode: "rw" or "ro"
    :ivar is_multi_node: whether other nodes may have it at the same time
    :ivar has_one_writer: whether only one of them writes
    """

    volume: StoredVolume
    node: str
    mode: str
    is_multi_node: bool
    has_one_writer: bool

    def find_conflicts(self, others: list[StoredAttachment]) -> list[StoredAttachment]:
        """Return the attachments that do not permit this one beside them."""
        if not (self.is_multi_node and self.volume.is_multiattach):
            return others
        if self.has_one_writer and self.mode == "rw":
            return [other for other in others if other.mode == "rw"]
        return []


class Publisher:
    """Publishes volumes.

    :param storage: the API
    :param fence: when silent nodes are fenced
    """

    def __init__(self, storage: Storage, fence: Fence) -> None:
        self._storage = storage
        self._fence = fence
        self._locks = VolumeLocks()

    def publish(self, wanted: Publication) -> str:
        """Attach a volume at a node; return the id of the attachment, which may be there already.

        :raises CallError: NOT_FOUND: there is no such node; ALREADY_EXISTS: it is attached there
            in another mode; FAILED_PRECONDITION: others hold the volume; ABORTED: other work goes
            on; or as the API refuses it
        """
        with self._locks.hold(wanted.volume.id):
            own = self._wait_for_own(wanted)
            if own is None:
                self._check_others(wanted)
                own = self._attach(wanted)
            elif wanted.volume.is_multiattach:
                # A killed controller may not have taken back what it attached elsewhere.
                self._check_others(wanted)
            if own.mode != wanted.mode:
                raise CallError(
                    ErrorCode.ALREADY_EXISTS,
                    f"Volume {wanted.volume.id} is published to node {wanted.node} in mode "
                    f"{own.mode}, and {wanted.mode} is requested.",
                )
            return own.id

    def _wait_for_own(self, wanted: Publication) -> StoredAttachment | None:
        """Return the attachment at the node when it is attached; None: there is none."""
        pauses = waiting.Pauses()
        while own := self._list_own(wanted.volume.id, wanted.node):
            first = own[0]
            if first.status == "attached":
                return first
            if first.status == _FAILED or first.is_older_reservation(_LOST_REQUEST):
                self._delete(first)
            elif first.status not in _CONNECTING:
                raise waiting.aborted(
                    f"Volume {wanted.volume.id} is {first.status} at node {wanted.node}"
                )
            pauses.take(f"Volume {wanted.volume.id} is being attached at node {wanted.node}")
        return None

    def _list_own(self, volume_id: str, node: str) -> list[StoredAttachment]:
        found = self._storage.attachments(volume_id)
        return [item for item in found if item.node is not None and node in {item.node, ""}]

    def _check_others(self, wanted: Publication) -> None:
        """Check that no attachment of another holder forbids that of the node.

        :raises HeldElsewhere: it names the nodes
        """
        found = self._storage.attachments(wanted.volume.id)
        others = [item for item in found if item.node != wanted.node and item.status != _FAILED]
        if conflicts := wanted.find_conflicts(others):
            raise HeldElsewhere(wanted.volume, conflicts)

    def _attach(self, wanted: Publication) -> StoredAttachment:
        """Create the attachment, and wait until the agent has made the device."""
        try:
            own = self._storage.attach(wanted.volume.id, wanted.node, wanted.mode)
        except StorageError as error:
            return self._attach_beside(wanted, error)
        if wanted.volume.is_multiattach:
            self._check_alone(wanted, own)
        return own

    def _attach_beside(self, wanted: Publication, error: StorageError) -> StoredAttachment:
        """Return what another controller has attached at the node; else raise the reason."""
        if error.reason not in _HELD:
            raise error
        own = self._wait_for_own(wanted)
        if own is not None:
            return own
        self._check_others(wanted)
        volume = self._storage.volumes.get(wanted.volume.id)
        if volume is None or volume.status.startswith("error"):
            raise error
        raise waiting.aborted(f"Volume {volume.id} is {volume.status}")

    def _check_alone(self, wanted: Publication, own: StoredAttachment) -> None:
        """Check a new attachment again, and take it back if another call was at work as well."""
        same = self._list_own(wanted.volume.id, wanted.node)
        try:
            if any(item.id != own.id for item in same):
                raise waiting.aborted(
                    f"Another call has attached volume {wanted.volume.id} at node {wanted.node}"
                )
            self._check_others(wanted)
        except CallError:
            LOG.warning("Volume %s: attachment %s is taken back", wanted.volume.id, own.id)
            self._delete(own)
            raise

    def unpublish(self, volume_id: str, node: str) -> None:
        """Detach a volume at a node; a node whose agent is silent is fenced.

        :param node: "": all nodes
        :raises CallError: FAILED_PRECONDITION: the node still uses it; UNAVAILABLE: the node is
            silent and is not fenced; or as the API refuses it
        """
        with self._locks.hold(volume_id):
            for own in self._list_own(volume_id, node):
                try:
                    self._delete(own)
                except StorageError as error:
                    if error.reason != "agent_unavailable":
                        raise
                    self._fence_node(own, error)

    def _delete(self, attachment: StoredAttachment) -> None:
        try:
            self._storage.detach(attachment.id)
        except StorageError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _fence_node(self, own: StoredAttachment, silence: StorageError) -> None:
        """End the access of a node without its agent.

        :raises CallError: it has not ended, or not with the proof that is required
        """
        if self._fence is Fence.NEVER:
            raise silence
        node = str(own.node)
        volume = self._storage.volumes.get(own.volume_id)
        fencing = self._storage.fencing(volume) if volume else ""
        if fencing not in _SUFFICIENT[self._fence]:
            raise CallError(
                ErrorCode.UNAVAILABLE,
                f"Node {node} is silent, and is not fenced: the fencing of the backend of volume "
                f"{own.volume_id} is {fencing or 'unknown'}, and {self._fence} is required. "
                f"{silence}",
            )
        LOG.warning("Node %s: fenced, as its agent is silent and a volume is to leave it", node)
        reason = f"The agent is silent, and CSI unpublishes volume {own.volume_id}"
        results = {item["attachment_id"]: item for item in self._storage.fence(node, reason)}
        result = results.get(own.id)
        if result is None:
            raise waiting.aborted(f"Volume {own.volume_id} is being detached from node {node}")
        if result["result"] == "pending":
            raise waiting.aborted(f"Node {node} is being fenced")
        if result["result"] not in _SUFFICIENT[self._fence]:
            raise CallError(
                ErrorCode.UNAVAILABLE,
                f"Node {node} may still have access to volume {own.volume_id}: its fence is "
                f"{result['result']}. {result['reason'] or ''}".rstrip(),
            )
