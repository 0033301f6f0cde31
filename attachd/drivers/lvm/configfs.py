# SPDX-License-Identifier: Apache-2.0
"""Changes of configfs, through which the kernel's targets are configured; for lio.py and nvmet.py.

rtslib and nvmetcli are not used: one of their calls makes several changes, and finds an object
that an interrupted call has left to be an error.  A driver has to check fencing before each single
change, and to continue where it was interrupted.
"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import os
from pathlib import Path
import socket
from typing import Final, NamedTuple

from attachd import exception
from attachd.drivers import base

ROOT: Final = Path("/sys/kernel/config")

_PORTAL_ERRORS = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES})


class Portal(NamedTuple):
    """Where hosts reach a target.

    :ivar address: without brackets
    :ivar port: TCP port
    """

    address: str
    port: str

    @property
    def family(self) -> socket.AddressFamily:
        """The family of the address."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


class Tree:
    """A mounted configfs, or a part of it.

    Each change that is needed is one system call, right after the check of fencing.  What is as
    requested is not changed again.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: Path) -> str:
        """Return the value of an attribute; "" if it does not exist."""
        try:
            return path.read_text(encoding="utf-8").strip(" \n\0")
        except FileNotFoundError:
            return ""

    def list(self, folder: Path) -> list[str]:
        """List the names in a directory, without attributes; none if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(
                item.name for item in folder.iterdir() if item.is_dir() or item.is_symlink()
            )
        return []

    def leads_to(self, link: Path, target: Path) -> bool:
        """Return whether a link leads to an object; not if either is removed meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            return link.resolve(strict=True) == target.resolve(strict=True)
        return False

    def make(self, folder: Path) -> None:
        """Make an object."""
        if not folder.is_dir():
            base.check_still_owner()
            with contextlib.suppress(FileExistsError):
                self._make(folder)

    def write(self, path: Path, value: str) -> None:
        """Set an attribute."""
        if self.read(path) != value:
            base.check_still_owner()
            self._write(path, value)

    def command(self, path: Path, value: str) -> None:
        """Write to an attribute that does not return what was written."""
        base.check_still_owner()
        self._write(path, value)

    def link(self, link: Path, target: Path) -> None:
        """Link one object to another one."""
        if not os.path.lexists(link):
            base.check_still_owner()
            with contextlib.suppress(FileExistsError):
                self._link(link, target)

    def remove(self, path: Path) -> None:
        """Remove a link, or an object without others in it."""
        remove = self._unlink if path.is_symlink() else self._remove
        if os.path.lexists(path):
            base.check_still_owner()
            with contextlib.suppress(FileNotFoundError):
                remove(path)

    # What a test replaces, with what the kernel does at each.

    def _make(self, folder: Path) -> None:
        folder.mkdir()

    def _write(self, path: Path, value: str) -> None:
        # Not created: a missing attribute is an error, not a file.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def _link(self, link: Path, target: Path) -> None:
        link.symlink_to(target)

    def _remove(self, folder: Path) -> None:
        folder.rmdir()

    def _unlink(self, link: Path) -> None:
        link.unlink()


def parse_portals(texts: list[str]) -> list[Portal]:
    """Parse ADDRESS:PORT; raises BackendError naming the option."""
    portals = []
    for text in texts:
        address, _colon, port = text.rpartition(":")
        portal = Portal(address.removeprefix("[").removesuffix("]"), port)
        try:
            socket.inet_pton(portal.family, portal.address)
            valid = 0 < int(port) < 2**16
        except (OSError, ValueError):
            valid = False
        if not valid:
            raise exception.BackendError(
                f"lvm_portals: {text!r} is not ADDRESS:PORT, with an IP address.", final=True
            )
        portals.append(portal)
    if not portals:
        raise exception.BackendError(
            "lvm_portals is empty: set it to the ADDRESS:PORT where hosts reach this machine.",
            final=True,
        )
    return portals


def check_portal(portal: Portal) -> None:
    """Check that the kernel could listen at a portal at which it does not listen yet."""
    with portal_errors(portal), socket.socket(portal.family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((portal.address, int(portal.port)))


@contextlib.contextmanager
def portal_errors(portal: Portal) -> Iterator[None]:
    """Convert the errors of listening at a portal to one that names the option."""
    try:
        yield
    except OSError as error:
        if error.errno not in _PORTAL_ERRORS:
            raise
        raise exception.BackendError(
            f"lvm_portals: the kernel cannot listen at {portal}: {error.strerror}. Set it to an "
            "address of this machine and a port that no other program uses."
        ) from error


def require(folder: Path, modules: str) -> None:
    """Check that a part of configfs is there.

    :param modules: the modules that provide it
    :raises BackendError: naming what to do
    """
    if folder.is_dir():
        return
    mounted = folder.parent.is_dir() and any(folder.parent.iterdir())
    reason = f"there is no {folder}: load the kernel modules {modules}"
    if not mounted:
        reason += f", and mount configfs at {ROOT}"
    raise exception.BackendError(f"lvm_target cannot be used: {reason}.", final=True)


def make_required(make: Callable[[Path], None], folder: Path, modules: str) -> None:
    """Make an object for which the kernel loads a module.

    :raises BackendError: naming the module
    """
    try:
        make(folder)
    except OSError as error:
        raise exception.BackendError(
            f"lvm_target cannot be used: {folder} cannot be made: {error.strerror}. Load the "
            f"kernel modules {modules}, and give this process the right to write there.",
            final=True,
        ) from error
