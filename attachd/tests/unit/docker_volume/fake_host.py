# SPDX-License-Identifier: Apache-2.0
"""Stand-ins of an agent and of the volumes that are mounted at its host."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attachd import exception
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.staging import Staging
from attachd.node.agent_client import DeviceInfo
from attachd.node.volumes import Target

HOST = "one"


class FakeAgent:
    """An agent whose devices are there at once.

    :ivar error: of the next calls for a device
    """

    def __init__(self, volume_ids: dict[str, str]) -> None:
        self._volume_ids = volume_ids
        self.error: Exception | None = None

    def get_device(self, attachment_id: str, _timeout: float) -> DeviceInfo:
        if self.error is not None:
            raise self.error
        return DeviceInfo(self._volume_ids.get(attachment_id, ""), "/dev/sdx", "rw", 2**30, None)


class FakeVolumes:
    """The staged volumes of a host.

    :ivar errors: of the next calls that change something, in order; None: it succeeds
    """

    def __init__(self) -> None:
        self.staged: dict[str, Staging] = {}
        self.errors: list[Exception | None] = []

    def _act(self) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def stage(self, target: Target, staging: Staging, **_options: Any) -> None:
        self._act()
        self.staged.setdefault(target.volume_id, staging)

    def unstage(self, volume_id: str, _path: str) -> None:
        self._act()
        self.staged.pop(volume_id, None)

    def add_use(self, volume_id: str, _path: str, use: str) -> None:
        self._act()
        self.staged[volume_id] = self.staged[volume_id].with_use(use)

    def end_use(self, volume_id: str, _path: str, use: str) -> tuple[str, ...]:
        self._act()
        if volume_id not in self.staged:
            return ()
        self.staged[volume_id] = self.staged[volume_id].without_use(use)
        return self.staged[volume_id].uses

    def list_staged(self, folder: str) -> list[Entry]:
        return [
            Entry(volume_id, Owner.AGENT, Step.ATTACHED, staging=staging)
            for volume_id, staging in self.staged.items()
            if f"{Path(staging.path).parent}" == folder
        ]

    def find(self, volume_id: str, _path: str) -> Entry | None:
        staging = self.staged.get(volume_id)
        return None if staging is None else Entry(volume_id, Owner.AGENT, staging=staging)


def conflict() -> exception.LocalConflict:
    """Return the error while other work on a volume is in progress."""
    return exception.LocalConflict(reason="Another process works on it.")


def identity() -> Any:
    """Return what a Mounter knows of its host."""
    return SimpleNamespace(identity=SimpleNamespace(name=HOST))
