# SPDX-License-Identifier: Apache-2.0
"""Volumes that are left at this host when an engine, or this plugin, was killed: given back.

A use counts until its engine ends it.  If the engine has ended, or this process has started since,
the use counts as long as the file system is mounted in a container or a file of it is open; after
some seconds in which it is not, the use is forgotten.  A volume without uses is unmounted and
detached.
"""

from collections.abc import Iterator
import logging
import threading
import time
from typing import Final

from attachd import exception
from attachd.docker_volume.mounting import Mounter, path_of
from attachd.docker_volume.named_volumes import name_of
from attachd.docker_volume.new_volume import NAME_KEY
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.platforms.storage import Storage

LOG = logging.getLogger(__name__)

_INTERVAL: Final = 10.0
"""Seconds between two rounds, at most."""
_ROUNDS_WHILE_IDLE: Final = 4
_LISTING_ROUNDS: Final = 6
"""Rounds after which the attachments of this host are listed: a request to the API."""
_TIME_LIMIT: Final = 50.0
"""Seconds of a round: the API does not answer later."""


class Reconciler:
    """Gives back volumes that are no longer used.

    :param idle_seconds: how long a volume is not used until a lost use is forgotten
    """

    def __init__(self, storage: Storage, mounter: Mounter, idle_seconds: float) -> None:
        self._storage = storage
        self._mounter = mounter
        self._idle_seconds = idle_seconds
        self._idle_since: dict[str, float] = {}
        self._reported: dict[str, str] = {}
        self._rounds = 0

    def run(self, ended: threading.Event) -> None:
        """Work until an event is set."""
        while not ended.wait(min(self._idle_seconds / _ROUNDS_WHILE_IDLE, _INTERVAL)):
            with calls.serving(Call.start(_TIME_LIMIT)):
                try:
                    self.reconcile()
                except (CallError, exception.HostError) as error:
                    self._report("", f"{error}")
                except Exception:
                    LOG.exception("Volumes that are no longer used could not be given back")

    def reconcile(self) -> None:
        """Give back what is no longer used."""
        idle = {}
        for volume_id, path in self._list_unused():
            since = self._idle_since.get(volume_id, time.monotonic())
            idle[volume_id] = since
            if time.monotonic() - since >= self._idle_seconds:
                self._give_back(volume_id, path)
        self._idle_since = idle

    def _list_unused(self) -> Iterator[tuple[str, str]]:
        """Yield volumes that seem to be without use: id and directory."""
        staged = self._mounter.list_staged()
        for entry in staged:
            if not self._mounter.is_used(entry):
                yield entry.volume_id, path_of(entry)
        yield from self._list_unmounted({entry.volume_id for entry in staged})

    def _list_unmounted(self, staged: set[str]) -> Iterator[tuple[str, str]]:
        """Yield volumes of Docker that are attached here and not mounted."""
        self._rounds += 1
        if self._rounds % _LISTING_ROUNDS != 1 and not self._idle_since.keys() - staged:
            return
        host = self._mounter.host.identity.name
        for attachment in self._storage.attachments(node=host):
            if attachment.volume_id in staged:
                continue
            volume = self._storage.volumes.get(attachment.volume_id)
            if volume is not None and NAME_KEY in volume.metadata:
                yield volume.id, self._mounter.path(name_of(volume))

    def _give_back(self, volume_id: str, path: str) -> None:
        try:
            self._mounter.forget_uses(volume_id, path)
            self._mounter.give_back(volume_id, path)
        except (CallError, exception.HostError) as error:
            self._report(volume_id, f"Volume {volume_id} is not used, and stays: {error}")
        else:
            self._reported.pop(volume_id, None)

    def _report(self, subject: str, message: str) -> None:
        """Log a failure, once until it changes."""
        if self._reported.get(subject) != message:
            self._reported[subject] = message
            LOG.warning("%s", message)
