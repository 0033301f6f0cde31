# SPDX-License-Identifier: Apache-2.0
"""Calls for volumes, with the state that each must reach."""

from collections.abc import Iterable, Mapping
from http import client as http
from pathlib import Path
from typing import Any, Final

from oslo_utils import units

from attachd.states import VolumeState
from attachd.tests.crash.calls import Call
from attachd.tests.fixtures.http_client import Request


class Create(Call):
    """POST /volumes."""

    ENDS = frozenset({http.ACCEPTED})

    def prepare(self) -> None:
        """Have nothing but a name."""
        self.name = f"volume {self.key}"

    def request(self) -> Request:
        """Return the call."""
        return self._post("/volumes", {"volume": {"size": 1, "name": self.name}})

    def wrong(self) -> Iterable[str]:
        """There is one volume of that name, and it can be used."""
        found = self.deployment.volumes_named(self.name)
        states = [(row["state"], row["status"]) for row in found]
        yield from self._differs("volumes", [(VolumeState.READY, "available")], states)

    def clean(self) -> None:
        """Remove the volumes of that name."""
        for row in self.deployment.volumes_named(self.name):
            self.volume = row["id"]
            super().clean()


class Copy(Create):
    """POST /volumes with a source."""

    def prepare(self) -> None:
        """Have a volume to copy."""
        super().prepare()
        self.source = self._new_volume()

    def request(self) -> Request:
        """Return the call."""
        wanted = {"source_volid": self.source, "name": self.name}
        return self._post("/volumes", {"volume": wanted})

    def clean(self) -> None:
        """Remove the source as well, after the clone."""
        super().clean()
        self.volume = self.source
        Call.clean(self)


class Delete(Call):
    """DELETE /volumes/ID."""

    ENDS = frozenset({http.ACCEPTED, http.NOT_FOUND, http.BAD_REQUEST})

    def request(self) -> Request:
        """Return the call."""
        return Request("DELETE", f"/volumes/{self.volume}")

    def wrong(self) -> Iterable[str]:
        """It is gone."""
        yield from self._differs("volume", None, self._volume_row())


class Extend(Call):
    """The action os-extend, of a volume in use."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST})
    """A volume that has grown already cannot grow to the same size."""

    def prepare(self) -> None:
        """Attach it."""
        super().prepare()
        self.attachment = self._attach()

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-extend", {"new_size": 2})

    def wrong(self) -> Iterable[str]:
        """It has the new size, and is in use as before."""
        row: Mapping[str, Any] = self._volume_row() or {}
        yield from self._differs("size", 2, row.get("size_gib"))
        yield from self._status_differs("in-use")


class Retype(Call):
    """The action os-retype."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST})
    """A volume that has the type already cannot be given it."""

    def prepare(self) -> None:
        """Have the type."""
        super().prepare()
        self.deployment.type_id("other")

    def request(self) -> Request:
        """Return the call."""
        return self._action(
            "os-retype",
            {"new_type": self.deployment.type_id("other"), "migration_policy": "never"},
        )

    def wrong(self) -> Iterable[str]:
        """It has the new type."""
        row: Mapping[str, Any] = self._volume_row() or {}
        yield from self._differs(
            "type", self.deployment.type_id("other"), row.get("volume_type_id")
        )
        yield from self._status_differs("available")


class Manage(Create):
    """POST /manageable_volumes, of a file with data."""

    def prepare(self) -> None:
        """Have a file."""
        super().prepare()
        services = self._request_json("GET", "/os-services?binary=cinder-volume")["services"]
        self.host = services[0]["host"]
        self.files = self._volumes_dir() / "manageable"
        self.file = self.files / f"disk {self.key}"
        with self.file.open("wb") as file:
            file.write(_DATA)
            file.truncate(units.Gi)
        self.inode = self.file.stat().st_ino

    def request(self) -> Request:
        """Return the call."""
        wanted = {"host": self.host, "ref": {"source-name": self.file.name}, "name": self.name}
        return self._post("/manageable_volumes", {"volume": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one volume of that name, it is the file, and the file is nothing else."""
        yield from super().wrong()
        found = [
            self._volumes_dir() / row["id"] for row in self.deployment.volumes_named(self.name)
        ]
        yield from self._differs("files", [_state_of(self.inode)], list(map(_state, found)))
        yield from self._differs("objects", [], list(self.files.iterdir()))


class Unmanage(Call):
    """The action os-unmanage."""

    ENDS = frozenset({http.ACCEPTED, http.NOT_FOUND, http.BAD_REQUEST})

    def prepare(self) -> None:
        """Have data on the volume."""
        super().prepare()
        path = self._volumes_dir() / self.volume
        with path.open("r+b") as file:
            file.write(_DATA)
        self.inode = path.stat().st_ino
        self.file = self._volumes_dir() / "manageable" / f"volume-{self.volume}"

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-unmanage")

    def wrong(self) -> Iterable[str]:
        """The volume is gone, and its file is an object."""
        yield from self._differs("volume", None, self._volume_row())
        yield from self._differs("file", _state_of(self.inode), _state(self.file))

    def clean(self) -> None:
        """Remove the file as well."""
        super().clean()
        self.file.unlink(missing_ok=True)


_DATA: Final = b"data" * 1024


def _state(file: Path) -> tuple[int, int, bytes] | None:
    """Return inode, size and first bytes of a file; None: there is none."""
    if not file.exists():
        return None
    with file.open("rb") as opened:
        return file.stat().st_ino, file.stat().st_size, opened.read(len(_DATA))


def _state_of(inode: int) -> tuple[int, int, bytes]:
    return inode, units.Gi, _DATA


CALLS = (Create, Copy, Delete, Extend, Retype, Manage, Unmanage)
