# SPDX-License-Identifier: Apache-2.0
"""A new volume, as Docker describes it: its name and its options.

Both are in the metadata of the volume, so that each host knows them.  The metadata with the prefix
``docker.`` are those of the plugin.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import re
from typing import Any, ClassVar, Final, Self

from attachd.agent.mount.mount_rules import FILESYSTEMS
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.resources import Stored
from attachd.platforms.storage import DOCKER_KEY, StoredVolume

PREFIX: Final = "docker."
NAME_KEY: Final = DOCKER_KEY
ADOPTED_KEY: Final = "docker.adopted"
"""Metadata of volumes that existed before Docker had them: Docker does not delete these."""
KNOWN: Final = {"docker.volume": "true"}
"""Metadata of each volume that Docker has."""
_OPTION_KEY: Final = "docker.option."

SIZE: Final = "size"
TYPE: Final = "type"
MODE: Final = "mode"
FS: Final = "fs"
MKFS: Final = "mkfs"
OPTIONS: Final = (SIZE, TYPE, MODE, FS, MKFS)
DEFAULT_FS: Final = "ext4"
_MODES: Final = ("rw", "ro")
_FLAGS: Final = ("true", "false")
_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}")
_MAX_VALUE: Final = 255
"""Characters of the metadata of a volume."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How Docker uses a volume, by what was requested when it was created.

    :ivar given: the options that were requested, as text
    """

    given: Mapping[str, str]

    @classmethod
    def from_request(cls, given: Mapping[str, str]) -> Self:
        """Read options of a request.

        :raises CallError: INVALID_ARGUMENT
        """
        if unknown := sorted(given.keys() - set(OPTIONS)):
            raise _invalid(f"There is no option {unknown[0]}. Options are: {', '.join(OPTIONS)}.")
        if SIZE in given and not _SIZE.fullmatch(given[SIZE]):
            raise _invalid("The option size has to be a number of GiB, such as size=10.")
        _check_choice(given, MODE, _MODES)
        _check_choice(given, MKFS, _FLAGS)
        _check_choice(given, FS, FILESYSTEMS)
        if not 0 < len(given.get(TYPE, "x")) <= _MAX_VALUE:
            raise _invalid("The option type has to be the name or the id of a volume type.")
        return cls(dict(given))

    @classmethod
    def read(cls, volume: StoredVolume) -> Self:
        """Return the options with which Docker has got a volume."""
        return cls(
            {
                key.removeprefix(_OPTION_KEY): value
                for key, value in volume.metadata.items()
                if key.startswith(_OPTION_KEY)
            }
        )

    @property
    def metadata(self) -> dict[str, str]:
        """The options as metadata of the volume."""
        return {f"{_OPTION_KEY}{key}": value for key, value in self.given.items()}

    @property
    def mode(self) -> str:
        """The mode of attachments: "rw" or "ro"."""
        return self.given.get(MODE, _MODES[0])

    @property
    def fs_type(self) -> str:
        """The type of the file system to make on a volume without data."""
        return self.given.get(FS, DEFAULT_FS)

    def makes_filesystem(self, *, is_adopted: bool) -> bool:
        """Return whether a volume without data gets a file system."""
        default = _FLAGS[1] if is_adopted else _FLAGS[0]
        return self.given.get(MKFS, default) == _FLAGS[0]

    def find_difference(self, volume: StoredVolume) -> str:
        """Return how a volume differs from what these options request; "" if it does not."""
        size, type_name = self.given.get(SIZE), self.given.get(TYPE)
        if size is not None and int(size) != volume.size_gib:
            return f"its size is {volume.size_gib} GiB"
        if type_name is not None and type_name not in volume.type_names:
            return f"its type is {' or '.join(sorted(volume.type_names)) or 'none'}"
        if NAME_KEY in volume.metadata:
            known = Options.read(volume).given
            for key in (MODE, FS, MKFS):
                if key in self.given and known.get(key) != self.given[key]:
                    return f"its option {key} is {known.get(key, 'not set')}"
        return ""


@dataclasses.dataclass(frozen=True)
class NewVolume:
    """A volume that is to be created for Docker.

    :ivar default_gib: its size in GiB without the option
    """

    name: str
    options: Options
    default_gib: int

    created_key: ClassVar[str] = "docker.created"
    source: ClassVar[None] = None
    zones: ClassVar[tuple[str, ...]] = ()

    @property
    def identity(self) -> dict[str, str]:
        """The metadata by which the volume is found."""
        return {NAME_KEY: self.name}

    @property
    def metadata(self) -> dict[str, str]:
        """All metadata that a volume has for Docker."""
        return {**KNOWN, **self.identity, **self.options.metadata}

    @property
    def type_name(self) -> str | None:
        """Name or id of the volume type; None: the default."""
        return self.options.given.get(TYPE)

    def is_source(self, _source: Stored) -> bool:
        """Return that no volume or snapshot can be its source."""
        return False

    def check_type(self, *, is_shared: bool) -> None:
        """Accept each type: the mode decides which hosts have the volume at the same time."""

    def choose_gib(self, least_gib: int) -> int:
        """Return the size in GiB, which is not less than another one."""
        return max(least_gib, int(self.options.given.get(SIZE, self.default_gib)))

    def find_difference(self, volume: StoredVolume) -> str:
        """Return how an existing volume of the name is another one; "" if it is this one."""
        return self.options.find_difference(volume)

    def values(self, size_gib: int, zone: str | None) -> dict[str, Any]:
        """Return the body of the request that creates it."""
        optional = {"volume_type": self.type_name, "availability_zone": zone}
        return {
            "name": self.name,
            "size": size_gib,
            "metadata": self.metadata,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def key(self, values: Mapping[str, Any], number: int) -> str:
        """Return the idempotency key of an attempt.

        :param values: of the request
        :param number: of attempts before it that created no volume, or one that is deleted
        """
        text = json.dumps([values, number], sort_keys=True)
        return f"docker-{hashlib.sha256(text.encode()).hexdigest()}"


def _check_choice(given: Mapping[str, str], key: str, choices: tuple[str, ...]) -> None:
    if given.get(key, choices[0]) not in choices:
        raise _invalid(f"The option {key} has to be one of: {', '.join(choices)}.")


def _invalid(message: str) -> CallError:
    return CallError(ErrorCode.INVALID_ARGUMENT, message)
