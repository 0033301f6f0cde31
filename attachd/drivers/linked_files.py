# SPDX-License-Identifier: Apache-2.0
"""Volumes as sparse files, and attachments as hard links to them; for drivers that export files.

``<folder>/volumes/<volume id>`` is a volume, and ``<folder>/exports/<volume id>/<attachment id>``
is the same file under the name that its host gets.  Links are as durable as files: they are the
record of what is granted.
"""

from collections.abc import Sequence
import contextlib
import errno
import os
from pathlib import Path

from attachd import exception
from attachd.drivers import base, sparse

_MAX_NAMED = 8
_NO_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EXDEV})

EXPORTS = "exports"
"""The directory of the links, in the folder."""


class LinkedFiles(sparse.SparseFiles):
    """The volumes of one backend, and their links.

    :param folder: other machines may write to it.  Its directories are created by
        :meth:`prepare`, for their owner alone
    :ivar exports: the directory with a directory of links for each exported volume
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "volumes", folder)
        self.exports = folder / EXPORTS

    def prepare(self) -> None:
        """Create the directories, or check that they can be used."""
        super().prepare()
        self.make_folder(self.exports)

    def delete(self, volume_id: str) -> None:
        """Delete the file, if it exists; refused while it has links."""
        self.remove_links(volume_id)
        super().delete(volume_id)

    def remove_links(self, volume_id: str) -> None:
        """Remove the directory for the links of a volume; refused while it has any."""
        with sparse.map_os_errors(f"The exports of volume {volume_id} could not be removed"):
            self._remove_folder(self.link_folder(volume_id))

    def link_folder(self, volume_id: str) -> Path:
        """Return the directory with the links of a volume."""
        return self.exports / sparse.plain_name(volume_id)

    def link_path(self, volume_id: str, attachment_id: str) -> Path:
        """Return the path of the link of an attachment, whether it exists or not."""
        return self.link_folder(volume_id) / sparse.plain_name(attachment_id)

    def link(self, volume_id: str, attachment_id: str) -> Path:
        """Make a link and its directory, where they are missing; what is missing survives a boot.

        :raises BackendError: final=True if the volume does not exist
        :raises OSError: from the operating system
        """
        path = self.link_path(volume_id, attachment_id)
        file = self.existing(volume_id)
        base.check_still_owner()
        self.tree.make_folder(path.parent, 0o700)
        base.check_still_owner()
        with self.opened(file, os.O_RDONLY) as descriptor:
            self.tree.link(descriptor, path)
        return path

    def sync_link(self, path: Path) -> None:
        """Synchronize the directories of a link, so that it survives a power failure."""
        self.tree.sync(path.parent)
        self.tree.sync(self.exports)

    def unlink(self, path: Path) -> None:
        """Remove a link, and its directory with the last one."""
        base.check_still_owner()
        self.tree.unlink(path)
        base.check_still_owner()
        # The directory stays while others have their links in it.
        with contextlib.suppress(OSError):
            self.tree.remove_folder(path.parent)

    def links(self, folder: Path) -> set[Path]:
        """List the links in :attr:`exports` or in the directory of a volume."""
        if folder == self.exports:
            return {link for item in self._list(folder) for link in self._list_any(item)}
        return set(self._list(folder))

    def _list(self, folder: Path) -> list[Path]:
        """List a directory without the names that no attachment has: hosts may have made them."""
        with contextlib.suppress(FileNotFoundError):
            return [path for path in self.tree.list(folder) if sparse.is_plain_name(path.name)]
        return []

    def _list_any(self, folder: Path) -> list[Path]:
        """List what may be a directory, or something else that a host has put there."""
        try:
            return self._list(folder)
        except OSError as error:
            if error.errno in _NO_DIRECTORY:
                return []
            raise

    def _remove_folder(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if found := self.tree.list(folder):
                raise exception.BackendError(
                    f"Volume {folder.name} is still exported: {_describe(found)}.", final=True
                )
            base.check_still_owner()
            self.tree.remove_folder(folder)


def _describe(links: Sequence[Path]) -> str:
    """Return the first attachments that have links, and the number of what else is there."""
    named = [link.name for link in links if sparse.is_plain_name(link.name)][:_MAX_NAMED]
    if not named:
        return f"{len(links)} files of no attachment are in its directory"
    further = f" and {len(links) - len(named)} more" if len(links) > len(named) else ""
    return f"attachment {', '.join(named)}{further}"
