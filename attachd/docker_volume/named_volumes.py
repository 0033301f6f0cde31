# SPDX-License-Identifier: Apache-2.0
"""The volumes that Docker has, by name: found, created, adopted and removed.

Docker has the volumes whose metadata have its name for them, on all hosts of a project.  Others
are not shown to it, so that no command of Docker removes them; a volume that exists already is
adopted by its name or its id.
"""

from collections.abc import Mapping
from typing import Final

from attachd.docker_volume.new_volume import (
    ADOPTED_KEY,
    KNOWN,
    NAME_KEY,
    PREFIX,
    NewVolume,
    Options,
)
from attachd.platforms import deletion
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.creation import VolumeCreator
from attachd.platforms.storage import Storage, StoredVolume
from attachd.platforms.waiting import BEING_DELETED

_ADOPTABLE: Final = frozenset({"available", "in-use", "reserved", "attaching", "detaching"})


class NamedVolumes:
    """The volumes that Docker has.

    Its methods raise CallError, also as the API refuses a request.

    :param default_gib: the size of a volume in GiB that is created without this option
    """

    def __init__(self, storage: Storage, default_gib: int) -> None:
        self._storage = storage
        self._creator = VolumeCreator(storage)
        self._default_gib = default_gib

    def list_all(self) -> list[StoredVolume]:
        """Return all volumes that Docker has."""
        return [volume for volume in self._storage.volumes.find(KNOWN) if _is_there(volume)]

    def find(self, name: str) -> StoredVolume | None:
        """Return the volume of a name; None: Docker has none.

        :raises CallError: FAILED_PRECONDITION: several have it
        """
        return _get_only(
            self._storage.volumes.find({NAME_KEY: name}),
            f"the metadata {NAME_KEY}={name}",
            "Delete this key of all but one",
        )

    def get(self, name: str) -> StoredVolume:
        """Return the volume of a name.

        :raises CallError: NOT_FOUND: Docker has none; FAILED_PRECONDITION: several have it
        """
        volume = self.find(name)
        if volume is None:
            raise CallError(ErrorCode.NOT_FOUND, f"There is no volume {name}.")
        return volume

    def create(self, name: str, given: Mapping[str, str]) -> StoredVolume:
        """Create a volume, or adopt the one that has the name or the id.

        :param given: options of Docker
        :raises CallError: INVALID_ARGUMENT: an option is wrong; ALREADY_EXISTS: there is one that
            differs; FAILED_PRECONDITION: several have the name
        """
        new = NewVolume(name, Options.from_request(given), self._default_gib)
        if self.find(name) is None:
            existing = self._find_existing(name)
            # Another host may have created or adopted it since.
            if existing is not None and existing.metadata.get(NAME_KEY) != name:
                return self._adopt(existing, new)
        return self._creator.create(new)

    def _find_existing(self, name: str) -> StoredVolume | None:
        found = self._storage.find_named(name)
        return _get_only(
            # A volume of attachd-csi may have the same name, and is another one.
            [volume for volume in found if volume.id == name or volume.csi_key is None],
            f"the name {name}",
            "Create the volume with one of these ids as its name",
        )

    def _adopt(self, volume: StoredVolume, new: NewVolume) -> StoredVolume:
        """Let Docker have a volume that was created otherwise."""
        if NAME_KEY in volume.metadata:
            difference = f"Docker has it as {name_of(volume)}"
        elif volume.csi_key is not None:
            difference = _describe_csi(volume)
        elif volume.status not in _ADOPTABLE:
            difference = f"its status is {volume.status}"
        else:
            difference = new.find_difference(volume)
        if difference:
            raise _exists(new.name, volume, difference)
        # It has data: the creator deletes one in error only without the key that it is created.
        marks = dict.fromkeys((ADOPTED_KEY, new.created_key), "true")
        self._storage.volumes.add_metadata(volume.id, {**new.metadata, **marks})
        adopted = self.get(new.name)
        if adopted.csi_key is not None:
            # A platform has published it since: it checks the same after it has said so.
            self._forget(adopted)
            raise _exists(new.name, adopted, _describe_csi(adopted))
        return adopted

    def remove(self, volume: StoredVolume) -> None:
        """Delete a volume that Docker has created, or forget one that was adopted.

        :raises CallError: FAILED_PRECONDITION: it is attached; the message names the hosts
        """
        holders = self._storage.attachments(volume.id)
        if hosts := sorted({item.host or f"attachment {item.id}" for item in holders}):
            raise CallError(
                ErrorCode.FAILED_PRECONDITION,
                f"Volume {name_of(volume)} ({volume.id}) is attached to "
                f"{', '.join(hosts)}, and is not removed. Stop the containers that use it there.",
            )
        if is_adopted(volume):
            self._forget(volume)
        else:
            deletion.delete(self._storage.volumes, volume.id)

    def _forget(self, volume: StoredVolume) -> None:
        """Remove from a volume that Docker has it.

        The name is last: until then a repeated call finds the volume.
        """
        keys = [key for key in volume.metadata if key.startswith(PREFIX) and key != NAME_KEY]
        for key in (*keys, NAME_KEY):
            self._storage.volumes.delete_metadata(volume.id, key)


def _exists(name: str, volume: StoredVolume, difference: str) -> CallError:
    return CallError(
        ErrorCode.ALREADY_EXISTS, f"Volume {name} exists as {volume.id}, and {difference}."
    )


def _describe_csi(volume: StoredVolume) -> str:
    return f"attachd-csi has it (metadata {volume.csi_key})"


def name_of(volume: StoredVolume) -> str:
    """Return the name that Docker has for a volume."""
    return volume.metadata[NAME_KEY]


def is_adopted(volume: StoredVolume) -> bool:
    """Return whether a volume existed before Docker had it."""
    return ADOPTED_KEY in volume.metadata


def _is_there(volume: StoredVolume) -> bool:
    return volume.status not in BEING_DELETED


def _get_only(matches: list[StoredVolume], distinction: str, remedy: str) -> StoredVolume | None:
    """Return the one volume of some that is there, or None.

    :param distinction: what the volumes have in common
    :raises CallError: FAILED_PRECONDITION: several are there
    """
    found = list(filter(_is_there, matches))
    if len(found) > 1:
        ids = ", ".join(volume.id for volume in found)
        raise CallError(
            ErrorCode.FAILED_PRECONDITION,
            f"{len(found)} volumes have {distinction}: {ids}. {remedy}.",
        )
    return found[0] if found else None
