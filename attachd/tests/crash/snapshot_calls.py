# SPDX-License-Identifier: Apache-2.0
"""Calls for snapshots, with the state that each must reach."""

from collections.abc import Iterable
from http import client as http
from pathlib import Path
from typing import Any, Final

from oslo_utils import units
import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.states import SnapshotState
from attachd.tests.crash import volume_calls
from attachd.tests.crash.calls import Call
from attachd.tests.fixtures.http_client import Request
from attachd.tests.wait import wait_until

_BEFORE: Final = b"then" * 1024
_AFTER: Final = b"now " * 1024


class Take(Call):
    """POST /snapshots."""

    ENDS = frozenset({http.ACCEPTED})

    def request(self) -> Request:
        """Return the call."""
        wanted = {"volume_id": self.volume, "force": True, "name": self.key}
        return self._post("/snapshots", {"snapshot": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one snapshot, and it can be used."""
        states = [row["state"] for row in self._snapshots()]
        yield from self._differs("snapshots", [SnapshotState.AVAILABLE], states)
        yield from self._status_differs("available")

    def clean(self) -> None:
        """Remove the snapshots as well, before the volume."""
        for row in self._snapshots():
            self._request_json("DELETE", f"/snapshots/{row['id']}")
        wait_until(lambda: not self._snapshots(), self._snapshots)
        super().clean()

    def _snapshots(self) -> list[dict[str, Any]]:
        table = models.snapshots
        statement = sa.select(table).where(table.c.volume_id == self.volume)
        with session.reader() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]

    def _take(self) -> str:
        body = {"snapshot": {"volume_id": self.volume, "force": True}}
        made = str(self._request_json("POST", "/snapshots", body)["snapshot"]["id"])
        wait_until(
            lambda: [row["state"] for row in self._snapshots()] == [SnapshotState.AVAILABLE],
            self._snapshots,
            interval=0.01,
        )
        return made

    def _write(self, data: bytes) -> None:
        with (self._volumes_dir() / self.volume).open("r+b") as file:
            file.write(data)

    def _read(self, volume_id: str) -> bytes | None:
        """Return the first bytes of a volume; None: it has no file."""
        state = _state(self._volumes_dir() / volume_id)
        return state and state[2]


class Remove(Take):
    """DELETE /snapshots/ID."""

    ENDS = frozenset({http.ACCEPTED, http.NOT_FOUND, http.BAD_REQUEST})

    def prepare(self) -> None:
        """Have a snapshot."""
        super().prepare()
        self.snapshot = self._take()

    def request(self) -> Request:
        """Return the call."""
        return Request("DELETE", f"/snapshots/{self.snapshot}")

    def wrong(self) -> Iterable[str]:
        """It is gone."""
        yield from self._differs("snapshots", [], self._snapshots())


class Revert(Remove):
    """The action revert."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST})
    """A volume that is being reverted cannot be reverted."""

    def prepare(self) -> None:
        """Have other data on the volume."""
        Call.prepare(self)
        self._write(_BEFORE)
        self.snapshot = self._take()
        self._write(_AFTER)

    def request(self) -> Request:
        """Return the call."""
        body = {"revert": {"snapshot_id": self.snapshot}}
        path = f"/volumes/{self.volume}/action"
        version = {"OpenStack-API-Version": "volume 3.40"}
        return Request("POST", path, body, version)

    def wrong(self) -> Iterable[str]:
        """It has the data of the snapshot, and both can be used."""
        yield from Take.wrong(self)
        yield from self._differs("data", _BEFORE, self._read(self.volume))


class Cascade(Remove):
    """DELETE /volumes/ID with its snapshots."""

    def request(self) -> Request:
        """Return the call."""
        return Request("DELETE", f"/volumes/{self.volume}?cascade=true")

    def wrong(self) -> Iterable[str]:
        """Both are gone."""
        yield from super().wrong()
        yield from self._differs("volume", None, self._volume_row())


class CreateOf(volume_calls.Create):
    """POST /volumes with a snapshot."""

    def prepare(self) -> None:
        """Have a snapshot with data."""
        super().prepare()
        self.source = Revert(self.deployment)
        self.source.prepare()

    def request(self) -> Request:
        """Return the call."""
        wanted = {"snapshot_id": self.source.snapshot, "name": self.name}
        return self._post("/volumes", {"volume": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one volume of that name, with the data."""
        yield from super().wrong()
        for row in self.deployment.volumes_named(self.name):
            yield from self._differs("data", _BEFORE, self.source._read(row["id"]))

    def clean(self) -> None:
        """Remove the snapshot as well, after the volume."""
        super().clean()
        self.source.clean()


class Manage(Take):
    """POST /manageable_snapshots, of a file with data."""

    def prepare(self) -> None:
        """Have a file."""
        super().prepare()
        self.files = self._volumes_dir() / "snapshots" / "manageable"
        self.file = self.files / f"then {self.key}"
        with self.file.open("wb") as file:
            file.write(_BEFORE)
            file.truncate(units.Gi)
        self.state = _state(self.file)

    def request(self) -> Request:
        """Return the call."""
        reference = {"source-name": self.file.name}
        wanted = {"volume_id": self.volume, "ref": reference, "name": self.key}
        return self._post("/manageable_snapshots", {"snapshot": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one snapshot, it is the file, and the file is nothing else."""
        yield from super().wrong()
        found = [_state(self.files.parent / row["id"]) for row in self._snapshots()]
        yield from self._differs("files", [self.state], found)
        yield from self._differs("objects", [], list(self.files.iterdir()))


class Unmanage(Remove):
    """The action os-unmanage of a snapshot."""

    def prepare(self) -> None:
        """Have a snapshot with data."""
        Call.prepare(self)
        self._write(_BEFORE)
        self.snapshot = self._take()
        snapshots = self._volumes_dir() / "snapshots"
        self.file = snapshots / "manageable" / f"snapshot-{self.snapshot}"
        self.state = _state(snapshots / self.snapshot)

    def request(self) -> Request:
        """Return the call."""
        return Request("POST", f"/snapshots/{self.snapshot}/action", {"os-unmanage": {}})

    def wrong(self) -> Iterable[str]:
        """It is gone, and its file is an object."""
        yield from super().wrong()
        yield from self._differs("file", self.state, _state(self.file))

    def clean(self) -> None:
        """Remove the file as well."""
        super().clean()
        self.file.unlink(missing_ok=True)


def _state(file: Path) -> tuple[int, int, bytes] | None:
    """Return inode, size and first bytes of a file; None: there is none."""
    if not file.exists():
        return None
    with file.open("rb") as opened:
        return file.stat().st_ino, file.stat().st_size, opened.read(len(_BEFORE))


CALLS = (Take, Remove, Revert, Cascade, CreateOf)
MANAGE_CALLS = (Manage, Unmanage)
