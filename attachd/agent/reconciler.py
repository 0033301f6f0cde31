# SPDX-License-Identifier: Apache-2.0
"""What the agent does about the attachments of its host, one at a time; for service.py and RPC.

Whatever is to be done is asked anew with the volume in hand, so that nobody acts upon what is no
longer wanted.  Each step is in the journal before it is taken: whoever comes after a crash or a
reboot finds what there may be, and goes on.
"""

from collections.abc import Iterable
import contextlib
import dataclasses
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.agent import block_device
from attachd.agent.connectors.base import Options
from attachd.agent.host import Host
from attachd.agent.journal import GOING, Entry, Owner, Step
from attachd.agent.patience import Patience
from attachd.agent.room import Room
from attachd.rpc import agent_manager_api
from attachd.rpc.agent_manager_api import AgentCredentials, DesiredState

LOG = log.getLogger(__name__)

CONNECTED = "connected"
DISCONNECTED = "disconnected"

_ROUNDS = 3
"""How many times is looked anew at what others decide about at the same time."""

_GIB = 2**30
_PATIENCE = 120.0


class Duties:
    """Makes devices of volumes and takes them away; any number of threads may ask for it.

    :param options: how to connect
    :param at_once: how many volumes are worked on at the same time
    :param patience: seconds to wait for whoever works on a volume
    :ivar room: where they are worked on
    """

    def __init__(
        self,
        host: Host,
        credentials: AgentCredentials,
        options: Options,
        at_once: int,
        patience: float = _PATIENCE,
    ) -> None:
        self._host = host
        self._journal = host.journal
        self._credentials = credentials
        self._options = options
        self._seconds = patience
        self._patience: Patience[list[str]] = Patience()
        self.room = Room(at_once)

    def look(self, attachment_id: str) -> None:
        """Find out what is due for an attachment, and do it.

        :raises HostError: this host could not
        :raises Unavailable: nobody says what is due, or hears what was done; or somebody else
            works on the volume for long
        """
        volume_id = self._volume_of(attachment_id)
        if volume_id is None:
            return
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._journal.held(volume_id, patience=self._seconds))
            except exception.LocalConflict as error:
                # Whoever asked has given up: this thread is for those who have not.
                raise exception.Unavailable(reason=f"{error}") from error
            stack.enter_context(self.room.entered(attachment_id))
            self._settle(volume_id, attachment_id)

    def due(self, duties: Iterable[DesiredState]) -> list[str]:
        """Return the attachments that look as if something was due, by what is known of them.

        Only one thread asks.

        :param duties: all of this host
        :raises HostError: the journal cannot be read, or the host hangs, so that nobody knows
        """
        return self._patience.run(lambda: self._due(duties))

    def _due(self, duties: Iterable[DesiredState]) -> list[str]:
        entries = self._journal.entries()
        known = {each.attachment_id: each for each in entries if each.owner is Owner.AGENT}
        wanted = {each["attachment_id"]: each for each in duties}
        undone = [name for name, duty in wanted.items() if not self._is_done(duty, known)]
        return [*undone, *(name for name in known if name and name not in wanted)]

    def _is_done(self, duty: DesiredState, known: dict[str | None, Entry]) -> bool:
        entry = known.get(duty["attachment_id"])
        if duty["target_state"] != CONNECTED or not duty["complete"] or entry is None:
            return False
        try:
            whole = entry.step is Step.ATTACHED and self._is_there(entry)
            return whole and not _is_small(duty, entry)
        except exception.HostError:
            return False

    def _volume_of(self, attachment_id: str) -> str | None:
        """Return the volume of an attachment that this host has to do with."""
        for entry in self._journal.entries():
            if entry.owner is Owner.AGENT and entry.attachment_id == attachment_id:
                return entry.volume_id
        duty = agent_manager_api.desired_state(self._credentials, attachment_id)
        return None if duty is None else duty["volume_id"]

    def _settle(self, volume_id: str, attachment_id: str) -> None:
        for _ in range(_ROUNDS - 1):
            try:
                self._do(volume_id, attachment_id)
            except (exception.InvalidTransition, exception.AttachmentNotFound) as error:
                LOG.info("What is due for attachment %s has changed: %s", attachment_id, error)
            else:
                return
        self._do(volume_id, attachment_id)

    def _do(self, volume_id: str, attachment_id: str) -> None:
        duty = agent_manager_api.desired_state(self._credentials, attachment_id)
        entries = self._journal.of_volume(volume_id)
        mine = next((each for each in entries if _is_of(each, attachment_id)), None)
        others = [each for each in entries if each is not mine]
        if duty is None:
            if mine is not None:
                self._forget(mine, others)
        elif duty["target_state"] == DISCONNECTED:
            self._disconnect(duty, mine, others)
        else:
            self._connect(duty, mine, others)

    def _connect(self, duty: DesiredState, mine: Entry | None, others: list[Entry]) -> None:
        there = mine is not None and self._is_there(mine)
        if mine is None or not there:
            mine = self._make(duty, mine, others)
        assert mine.device is not None
        if not duty["complete"] or mine.step is not Step.ATTACHED:
            # Also of what was complete before: since a reboot its path may be another one.
            mine = self._journal.write(mine, step=Step.COMPLETING)
            assert mine.device is not None
            agent_manager_api.connected(
                self._credentials, duty["attachment_id"], duty["generation"], mine.device.path
            )
            mine = self._journal.write(mine, step=Step.ATTACHED)
        if there and _is_small(duty, mine):
            self._grow(duty, mine)

    def _make(self, duty: DesiredState, mine: Entry | None, others: list[Entry]) -> Entry:
        """Return an entry with a device; a failure is told before it is raised."""
        try:
            self._check_free(duty, others)
            info = _info(duty)
            self._host.check(info.get("driver_volume_type"))
            if mine is not None and mine.connection_info != info:
                # It was to be connected otherwise, and nobody knows how far that went.
                mine = mine if self._is_shared(mine, others) else self._discard(mine)
            if duty["complete"]:
                LOG.warning(
                    "The device of volume %s, attachment %s, is not there (any more), as after a "
                    "reboot: it is made again",
                    duty["volume_id"],
                    duty["attachment_id"],
                )
            made = self._host.connect(self._entry(duty, mine))
        except exception.HostError as error:
            self._tell_failure(duty, error)
            raise
        LOG.info("Volume %s is %s", duty["volume_id"], made.device and made.device.path)
        return made

    def _entry(self, duty: DesiredState, mine: Entry | None) -> Entry:
        begun = mine or Entry(
            duty["volume_id"],
            owner=Owner.AGENT,
            attachment_id=duty["attachment_id"],
            connector_type=self._host.connector.TYPE,
        )
        return dataclasses.replace(
            begun, mode=duty["mode"], options=self._options, connection_info=_info(duty)
        )

    def _check_free(self, duty: DesiredState, others: list[Entry]) -> None:
        """Find out that nobody else has the volume on this host.

        :raises LocalConflict: somebody has attached it by hand
        """
        for each in others:
            if each.owner is not Owner.AGENT:
                raise exception.LocalConflict(
                    reason=f"Volume {duty['volume_id']} is attached to host "
                    f"{self._credentials.host} by hand, by attachment {each.attachment_id}. "
                    "Detach it there: local-detach on that host."
                )
            assert each.attachment_id is not None
            if agent_manager_api.desired_state(self._credentials, each.attachment_id) is None:
                self._forget(each, [every for every in others if every is not each])

    def _tell_failure(self, duty: DesiredState, error: exception.HostError) -> None:
        try:
            agent_manager_api.connect_failed(
                self._credentials, duty["attachment_id"], duty["generation"], f"{error}"
            )
        except exception.AttachdError as trouble:
            LOG.warning("Attachment %s: %s (%s)", duty["attachment_id"], error, trouble)

    def _grow(self, duty: DesiredState, mine: Entry) -> None:
        grown = self._host.extend(mine)
        if grown < duty["size_gib"] * _GIB:
            raise exception.HostError(
                reason=f"Volume {duty['volume_id']} has {duty['size_gib']} GiB, and its device on "
                f"host {self._credentials.host} still {grown} bytes."
            )
        LOG.info("The device of volume %s has grown to %d bytes", duty["volume_id"], grown)

    def _disconnect(self, duty: DesiredState, mine: Entry | None, others: list[Entry]) -> None:
        if mine is None:
            mine = self._unheard_of(duty, others)
        if mine is not None:
            try:
                if not self._is_shared(mine, others):
                    mine = self._host.disconnect(mine)
            except exception.DeviceBusy as error:
                agent_manager_api.detach_refused(
                    self._credentials, duty["attachment_id"], duty["generation"], f"{error}"
                )
                raise
            except exception.HostError as error:
                self._tell_failure(duty, error)
                raise
        agent_manager_api.disconnected(
            self._credentials, duty["attachment_id"], duty["generation"]
        )
        if mine is not None:
            self._journal.remove(mine)

    def _unheard_of(self, duty: DesiredState, others: list[Entry]) -> Entry | None:
        """Return an entry for what nothing was ever begun for, as far as the journal knows.

        A journal, or this entry of it, may have been lost.  So what can be asked is asked, unless
        nothing can have been made because the tools are missing.  Beside other attachments that is
        done where each has a device, so that a shared one is known as such, and none is by hand.
        """
        info = _info(duty)
        if self._host.connector.missing_requirements(info.get("driver_volume_type")):
            return None
        if any(each.owner is not Owner.AGENT or each.device is None for each in others):
            return None
        return self._entry(duty, None) if duty["connection_info"] else None

    def _forget(self, mine: Entry, others: list[Entry]) -> None:
        """Take away what is not this host's (any more), unless somebody uses it.

        Whoever has deleted it by force has shut the host out already.  But the service may as well
        have lost its memory, or be another one: nothing is torn from under those who use it.

        :raises DeviceBusy: they do
        """
        if not self._is_shared(mine, others):
            if self._host.is_present(mine):
                LOG.warning(
                    "Volume %s, attachment %s, is not attached to this host any more: by force, "
                    "or because it went elsewhere. Its device is taken away unless it is used",
                    mine.volume_id,
                    mine.attachment_id,
                )
            mine = self._discard(mine)
        self._journal.remove(mine)

    def _discard(self, mine: Entry) -> Entry:
        """Take away what is not wanted like this, saved or not; raises DeviceBusy: it is used."""
        self._host.check_unused(mine)
        return self._host.disconnect(mine, force=True)

    def _is_shared(self, mine: Entry, others: list[Entry]) -> bool:
        """Tell whether another attachment of the volume has the same device, and keeps it."""
        staying = [each for each in others if each.step not in GOING]
        return any(self._host.is_shared(mine, each) for each in staying)

    def _is_there(self, entry: Entry) -> bool:
        """Tell whether there is a whole device; one that was to go may be half gone."""
        return entry.step not in GOING and self._host.is_present(entry)


def _is_of(entry: Entry, attachment_id: str) -> bool:
    return entry.owner is Owner.AGENT and entry.attachment_id == attachment_id


def _is_small(duty: DesiredState, entry: Entry) -> bool:
    assert entry.device is not None
    return block_device.size(entry.device.path) < duty["size_gib"] * _GIB


def _info(duty: DesiredState) -> dict[str, Any]:
    """Return the connection, and what os-brick's guard goes by."""
    guard = {name: duty[name] for name in ("shared_targets", "service_uuid")}
    return {**duty["connection_info"], **(guard if duty["service_uuid"] else {})}
