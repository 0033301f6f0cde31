# SPDX-License-Identifier: Apache-2.0
"""Periodic trims of the file systems on the volumes of an agent; see mount/trim.py."""

from pathlib import Path
import time
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount import trim
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

_CHECK_INTERVAL: Final = 60.0


class TrimTimer(PeriodicThread):
    """Trims what is mounted for writing, volume after volume, some hours after the last time.

    :param interval: in seconds
    """

    def __init__(self, host: Host, interval: float) -> None:
        super().__init__("trim", self.run_once, lambda: _CHECK_INTERVAL, self._log_failure)
        self._host = host
        self._trim_interval = interval
        # Its time of change is when the last trim began: a restart does not begin another one.
        self._stamp = host.journal.state_path / "trimmed"

    def run_once(self) -> None:
        """Trim each volume, if it is time.

        :raises HostError: the journal cannot be read
        """
        if not self._is_due(self._stamp):
            return
        self._stamp.touch()
        for entry in self._host.journal.list_entries():
            if entry.owner is Owner.AGENT and entry.step is Step.ATTACHED:
                self._trim(entry)

    def _is_due(self, stamp: Path) -> bool:
        try:
            return time.time() - stamp.stat().st_mtime >= self._trim_interval
        except FileNotFoundError:
            return True

    def _trim(self, entry: Entry) -> None:
        """Trim a volume; between two ranges others can work on it, such as detach it."""
        try:
            if not self._host.is_present(entry):
                return
            assert entry.device is not None
            journal, total = self._host.journal, 0
            for part in trim.list_ranges(entry.device.path):
                with journal.volume_lock(entry.volume_id):
                    total += trim.trim(part, journal.held_lock())
        except trim.CannotTrim as error:
            LOG.debug("Volume %s: %s", entry.volume_id, error)
        except exception.AttachdError as error:
            LOG.warning("Volume %s: not trimmed: %s", entry.volume_id, error)
        else:
            LOG.info("Volume %s: trimmed %d bytes", entry.volume_id, total)

    @staticmethod
    def _log_failure(error: Exception) -> None:
        LOG.error("No volume was trimmed: %s", error)
