# SPDX-License-Identifier: Apache-2.0
"""How containers of a host use the device of an attachment of its agent; a part of the journal."""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Publication:
    """One container's access to a staged volume.

    :ivar path: of the directory, or of the file in place of a device
    """

    path: str
    read_only: bool = False


@dataclasses.dataclass(frozen=True)
class Staging:
    """The use of a device by containers: from before the first one until after the last.

    :ivar path: the staging directory, where the file system is mounted
    :ivar fs_type: of the file system; None: containers get the device as it is
    :ivar options: of the mount, separated by commas, as the caller has requested them
    :ivar exclusive: whether it can be published at one path only
    :ivar mkfs: whether a file system is made on a device without data
    :ivar publications: to containers
    :ivar uses: the ids of uses by containers that the engine itself shows the staging directory
    """

    path: str
    fs_type: str | None
    read_only: bool = False
    options: str = ""
    exclusive: bool = False
    mkfs: bool = True
    publications: tuple[Publication, ...] = ()
    uses: tuple[str, ...] = ()

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Staging":
        """Return what was stored as JSON."""
        publications = tuple(Publication(**stored) for stored in values["publications"])
        uses = tuple(values.get("uses", ()))
        return cls(**{**values, "publications": publications, "uses": uses})

    def is_like(self, other: "Staging") -> bool:
        """Return whether both use a device in the same manner, by any number of containers."""
        return dataclasses.replace(self, publications=other.publications, uses=other.uses) == other

    def find(self, path: str) -> Publication | None:
        """Return the publication at a path."""
        return next((item for item in self.publications if item.path == path), None)

    def with_publication(self, publication: Publication) -> "Staging":
        """Return a copy with one more publication, or another one at its path."""
        others = self.without_publication(publication.path).publications
        return dataclasses.replace(self, publications=(*others, publication))

    def without_publication(self, path: str) -> "Staging":
        """Return a copy without the publication at a path."""
        others = tuple(item for item in self.publications if item.path != path)
        return dataclasses.replace(self, publications=others)

    def with_use(self, use: str) -> "Staging":
        """Return a copy with one more use, or the same one."""
        return dataclasses.replace(self, uses=tuple(dict.fromkeys((*self.uses, use))))

    def without_use(self, use: str) -> "Staging":
        """Return a copy without a use."""
        return dataclasses.replace(self, uses=tuple(item for item in self.uses if item != use))
