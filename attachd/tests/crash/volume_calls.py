# SPDX-License-Identifier: Apache-2.0
"""Calls for volumes, with the state that each must reach."""

from collections.abc import Iterable
from http import client as http

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
        row = self._volume_row() or {}
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
        row = self._volume_row() or {}
        yield from self._differs(
            "type", self.deployment.type_id("other"), row.get("volume_type_id")
        )
        yield from self._status_differs("available")


CALLS = (Create, Copy, Delete, Extend, Retype)
