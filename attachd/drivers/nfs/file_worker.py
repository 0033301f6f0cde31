# SPDX-License-Identifier: Apache-2.0
"""The program that works on the files of one mounted share; file_process.py starts and kills it.

Its working directory is the root of the share, which cannot be unmounted meanwhile.  It reads
requests from a socket, its standard input, and ends with the process at the other end.

A request is a line of JSON, ``[name of a method of ShareFiles, arguments...]``; before it comes
one byte with the liveness descriptors of the caller, and last that of a file in memory with data,
if the method takes any.  The answer is ``{"result": ...}``,
``{"error": reason, "final": bool, "in_use": bool, "unreachable": errno or 0}`` or, for
InvalidInput, ``{"invalid": {"field": ..., "value": ..., "reason": ...}}``.  Before each change the
program sends ``{"check": true}``, and goes on if the answer is true.  During a copy it sends
``{"progress": fraction}``.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import errno
import fcntl
import functools
import json
import os
from pathlib import Path
import socket
import stat
import struct
import sys
from typing import Any, BinaryIO, Final, Literal

from attachd import exception
from attachd.drivers import base, existing_files, linked_files, snapshot_files, sparse

Kind = Literal["volume", "snapshot"]
"""What files can become."""

MAX_DESCRIPTORS: Final = 8
"""The largest number of descriptors with a request."""

_UNREACHABLE: Final = frozenset(
    {
        *(errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EREMOTEIO),
    }
)
"""Errors of a share that is away, or of which the server knows nothing any more."""

# struct flock with 64 bits: type, whence, start, length, process.
_FLOCK: Final = struct.Struct("hhqqi4x")


class _Snapshots:
    """The snapshots of a share."""

    def __init__(self) -> None:
        self._files = linked_files.LinkedFiles(Path())
        self._snapshots = snapshot_files.SnapshotFiles(self._files)
        self._existing: dict[Kind, existing_files.ExistingFiles] = {
            "volume": existing_files.ExistingFiles(
                self._files, lambda volume: self._files.remove_links(volume.id), _describe_use
            ),
            "snapshot": snapshot_files.existing_snapshots(self._snapshots, _describe_use),
        }

    def _check_detached(self, source_id: str, copy: Path) -> None:
        """Refuse a source with links, unless its copy is there."""
        if self._files.tree.stat(copy) is None and self._links_of(source_id):
            raise exception.BackendError(
                f"Volume {source_id} is attached, and hosts may write to it: detach it first.",
                final=True,
            )

    def create_snapshot(self, snapshot_id: str, volume_id: str, size_gib: int) -> None:
        """Copy the file of a volume without links, as :meth:`clone`."""
        self._check_detached(volume_id, self._snapshots.path(snapshot_id))
        self._snapshots.take(snapshot_id, volume_id, size_gib)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete the file of a snapshot."""
        self._snapshots.delete(snapshot_id)

    def create_from_snapshot(self, volume_id: str, size_gib: int, snapshot_id: str) -> None:
        """Copy the file of a snapshot."""
        self._snapshots.fill(volume_id, size_gib, snapshot_id)

    def revert(self, volume_id: str, size_gib: int, snapshot_id: str) -> None:
        """Replace the file of a volume by a copy of that of a snapshot."""
        self._snapshots.revert(volume_id, size_gib, snapshot_id)

    def snapshot_ids(self) -> list[str]:
        """List the snapshots."""
        return sorted(self._snapshots.sizes())

    def _links_of(self, volume_id: str) -> set[Path]:
        return self._files.links(self._files.link_folder(volume_id))


class _Data(_Snapshots):
    """The data of the volumes of a share.

    :ivar buffer: the file in memory of the call
    """

    buffer = -1

    def read_data(self, volume_id: str, offset: int, length: int) -> None:
        """Read some bytes of a volume into the buffer."""
        with sparse.open_data(self._files, volume_id, "ro") as data:
            os.pwrite(self.buffer, data.read(offset, length), 0)

    def write_data(self, volume_id: str, offset: int, length: int) -> None:
        """Write the bytes of the buffer to a volume, and to the disk of the server."""
        with sparse.open_data(self._files, volume_id, "rw") as data:
            data.write(offset, os.pread(self.buffer, length, 0))


class ShareFiles(_Data):
    """The volumes, snapshots and links of a share; arguments and results are JSON."""

    def prepare(self) -> None:
        """Create the directories, or check that they can be used."""
        self._files.prepare()
        self._snapshots.prepare()
        for found in self._existing.values():
            found.prepare()

    def can_discard(self) -> bool:
        """Return whether the server frees blocks of a file that are discarded."""
        return self._files.can_discard()

    def stats(self) -> dict[str, float]:
        """Return the capacity, as fields of :class:`base.BackendStats`."""
        stats = dataclasses.asdict(self._files.stats(""))
        return {name: stats[name] for name in ("total_gib", "free_gib", "allocated_gib")}

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all volumes in bytes, by id."""
        return self._files.sizes()

    def size(self, volume_id: str) -> int | None:
        """Return the size of a volume in bytes; None: there is no file of it."""
        return self._files.size(volume_id)

    def create(self, volume_id: str, size_gib: int) -> None:
        """Create the file of a volume."""
        self._files.create(base.VolumeRef(volume_id, size_gib))

    def clone(self, volume_id: str, size_gib: int, source_id: str) -> None:
        """Copy a file without links: hosts of others may write to it, unseen by this machine."""
        self._check_detached(source_id, self._files.path(volume_id))
        self._files.clone(base.VolumeRef(volume_id, size_gib), source_id)

    def delete(self, volume_id: str) -> None:
        """Delete the file of a volume; refused while it has links."""
        self._files.delete(volume_id)

    def extend(self, volume_id: str, size_gib: int) -> None:
        """Extend the file of a volume."""
        self._files.extend(volume_id, size_gib)

    def link(self, volume_id: str, attachment_id: str) -> None:
        """Make the link of an attachment."""
        with sparse.map_os_errors(f"Volume {volume_id} could not be exported"):
            self._files.sync_link(self._files.link(volume_id, attachment_id))

    def unlink(self, volume_id: str, attachment_id: str, others: Sequence[str]) -> None:
        """Remove the link of an attachment; refused if it is the only one and a host has a lock.

        :param others: the ids of the other attachments.  The names in the directory do not count:
            a host can make one there, and then another host's lock would be ignored.
        """
        path = self._files.link_path(volume_id, attachment_id)
        with sparse.map_os_errors(f"Volume {volume_id} could not be withdrawn"):
            if not others and any(map(self._is_locked, (path, self._files.path(volume_id)))):
                raise exception.BackendInUse(
                    f"A host still has volume {volume_id} open, as its lock on the file shows: "
                    "close it, then detach again."
                )
            self._files.unlink(path)

    def unlink_except(self, volume_id: str, attachment_ids: Sequence[str]) -> None:
        """Remove all other links of a volume."""
        with sparse.map_os_errors(f"Volume {volume_id} could not be withdrawn"):
            for path in sorted(self._links_of(volume_id)):
                if path.name not in attachment_ids:
                    self.unlink(volume_id, path.name, attachment_ids)

    def links(self, volume_id: str) -> list[tuple[str, str]]:
        """List the links of a volume, "": of all, as volume id and attachment id."""
        folder = self._files.link_folder(volume_id) if volume_id else self._files.exports
        with sparse.map_os_errors("The attachments could not be listed"):
            return sorted((path.parent.name, path.name) for path in self._files.links(folder))

    def list_manageable(self, kind: Kind) -> list[dict[str, Any]]:
        """List volumes or snapshots, and the files that can become some.

        :returns: fields of :class:`abilities.ManageableObject`
        """
        return [dataclasses.asdict(found) for found in self._existing[kind].list()]

    def get_manageable(self, kind: Kind, reference: Mapping[str, str]) -> dict[str, Any]:
        """Return one of them; raises InvalidInput if there is none."""
        return dataclasses.asdict(self._existing[kind].get(reference))

    def manage(self, kind: Kind, new_id: str, size_gib: int, reference: Mapping[str, str]) -> None:
        """Rename a file to a volume or a snapshot."""
        self._existing[kind].manage(base.VolumeRef(new_id, size_gib), reference)

    def unmanage(self, kind: Kind, former_id: str) -> None:
        """Make a file of a volume or a snapshot; refused while a volume has links."""
        self._existing[kind].unmanage(base.VolumeRef(former_id, 0))

    def _is_locked(self, path: Path) -> bool:
        status = self._files.tree.stat(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return False  # a host has put something else there
        with self._files.opened(path, os.O_RDWR) as descriptor:
            return _is_locked(descriptor)


def main() -> None:
    """Answer requests until the socket is closed."""
    control = socket.socket(fileno=sys.stdin.fileno())
    lines = control.makefile("rb")

    def check() -> None:
        _send(control, {"check": True})
        if not _receive(lines):
            raise exception.BackendError("Another process works on the volume.")

    def report(fraction: float) -> None:
        _send(control, {"progress": fraction})

    while (received := socket.recv_fds(control, 1, MAX_DESCRIPTORS))[0]:
        name, *arguments = _receive(lines)
        with base.ownership(check), base.progress_scope(report):
            answer = _call(name, arguments, received[1][-1] if received[1] else -1)
        _send(control, answer)
        # Until now the caller counts as alive.
        for descriptor in received[1]:
            os.close(descriptor)


@functools.cache
def _enter_share() -> ShareFiles:
    """Enter the share, once: what is at its path later may be another file system."""
    os.chdir(sys.argv[1])
    return ShareFiles()


def _call(name: str, arguments: Sequence[Any], buffer: int = -1) -> dict[str, Any]:
    try:
        share = _enter_share()
        share.buffer = buffer
        return {"result": getattr(share, name)(*arguments)}
    except exception.BackendError as error:
        in_use = isinstance(error, exception.BackendInUse)
        return _failure(error, error.details["reason"], final=error.final, in_use=in_use)
    except exception.InvalidInput as error:
        names = ("field", "value", "reason")
        return {"invalid": {name: error.details[name] for name in names}}
    except OSError as error:
        return _failure(error, f"{error}.")


def _failure(
    error: Exception, reason: str, *, final: bool = False, in_use: bool = False
) -> dict[str, Any]:
    number = _unreachable_errno(error)
    return {"error": reason, "final": final, "in_use": in_use, "unreachable": number}


def _unreachable_errno(error: BaseException | None) -> int:
    """Return the error number that shows that the share is away; 0: it is there."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _UNREACHABLE:
            return error.errno
        error = error.__cause__
    return 0


def _describe_use(file: Path, descriptor: int) -> str:
    """Return how a file of no volume is in use, as far as this machine knows; "" if it is not.

    The kernel has no leases for files of an NFS server, so that who has one open stays unknown.
    """
    if use := existing_files.describe_loop_devices(file.absolute()):
        return use
    return "It is in use: a host has a lock on it." if _is_locked(descriptor) else ""


def _is_locked(file: int) -> bool:
    """Return whether another process or host has a lock on a file, as QEMU has.

    The server knows the locks of all hosts, unless they or this machine mount with ``nolock``.

    Source: fcntl(2), F_OFD_GETLK; QEMU's block/file-posix.c, raw_apply_lock_bytes().
    """
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found: bytes = fcntl.fcntl(file, fcntl.F_OFD_GETLK, request)
    except OSError as error:
        if _unreachable_errno(error):
            raise
        return False  # a server without locks
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _send(control: socket.socket, message: Any) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


def _receive(lines: BinaryIO) -> Any:
    line = lines.readline()
    if not line:
        # The caller has ended, and with it its permission to change anything.
        os._exit(1)
    return json.loads(line)


if __name__ == "__main__":
    main()
