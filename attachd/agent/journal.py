# SPDX-License-Identifier: Apache-2.0
"""What is attached on this host, and what is just being done about it; one file per volume use.

It is written before anything is done, and again when it is done, so that whoever comes after a
crash or a reboot knows what there may be.  The files hold secrets of connections: they and their
folder are for root alone.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import enum
import fcntl
import json
import os
from pathlib import Path
import time
from typing import IO, Any
import uuid

from attachd import exception
from attachd.agent.connectors.base import Device, Options

FOLDER = Path("/var/lib/attachd/host")
"""Where the journal of a host is, unless somebody says otherwise."""

_NAP = 0.05


class Step(enum.StrEnum):
    """What was begun last.  Each step is noted before it is taken, so it may have had effect."""

    RESERVING = "reserving"
    CONNECTING = "connecting"
    COMPLETING = "completing"
    MOUNTING = "mounting"
    ATTACHED = "attached"
    UNMOUNTING = "unmounting"
    DISCONNECTING = "disconnecting"
    DELETING = "deleting"


GOING = frozenset({Step.UNMOUNTING, Step.DISCONNECTING, Step.DELETING})
"""Steps of the way back: whoever finds one goes on in that direction."""


class Owner(enum.StrEnum):
    """Who looks after an attachment: commands that people type, or the agent."""

    LOCAL = "local"
    AGENT = "agent"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One volume on this host.

    :ivar id: also the Idempotency-Key of the reservation, so that a repeated one is the same
    :ivar attachment_id: None until the reservation is known
    :ivar connection_info: as the API shows it, with secrets; None until it is known
    :ivar mountpoint: where it is mounted, or to be; None: it is not
    :ivar mkfs: the file system that may be made on a device without data; None: none may
    :ivar formatting: the file system that is being made on the device, which was found to be
        empty; it is half-made, if it is there.  None: nothing is
    :ivar restoring: it was attached, and is being connected again
    :ivar cloud: of which service it is: the endpoint's URL, for commands that know several
    :ivar error: why the last step failed; None: it did not, or is under way
    """

    volume_id: str
    owner: Owner = Owner.LOCAL
    step: Step = Step.RESERVING
    id: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))
    attachment_id: str | None = None
    connector_type: str = ""
    mode: str = "rw"
    options: Options = dataclasses.field(default_factory=Options)
    connection_info: dict[str, Any] | None = None
    device: Device | None = None
    mountpoint: str | None = None
    mkfs: str | None = None
    formatting: str | None = None
    restoring: bool = False
    cloud: str | None = None
    error: str | None = None
    changed_at: str = ""


class Journal:
    """The entries of one host.

    :param folder: made if it is missing
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def entries(self) -> list[Entry]:
        """Return all of them, oldest change first.

        :raises HostError: one cannot be read; nothing is guessed of what it said
        """
        found = [_read(path) for path in self._entries.glob("*.json")]
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: (each.changed_at, each.id))

    def of_volume(self, volume_id: str) -> list[Entry]:
        """Return the entries of one volume, oldest change first."""
        return [each for each in self.entries() if each.volume_id == volume_id]

    def get(self, entry_id: str) -> Entry | None:
        """Return one entry, or None if it is gone."""
        return _read(self._path(entry_id))

    def write(self, entry: Entry, **changes: Any) -> Entry:
        """Store an entry with some changes, so that it is on disk when this returns.

        :raises HostError: it is not, such as on a full disk; what was stored before is there
        """
        now = datetime.datetime.now(datetime.UTC).isoformat()
        changed = dataclasses.replace(entry, **changes, changed_at=now)
        path = self._path(entry.id)
        with _told(path):
            self._make(path.parent)
            new = path.with_suffix(".new")
            file = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as output:
                json.dump(dataclasses.asdict(changed), output)
                output.flush()
                os.fsync(output.fileno())
            new.rename(path)
            _sync(path.parent)
        return changed

    def remove(self, entry: Entry) -> None:
        """Forget an entry of which nothing is left; raises HostError if it cannot be forgotten."""
        with _told(self._path(entry.id)):
            self._path(entry.id).unlink(missing_ok=True)
            _sync(self._entries)

    @contextlib.contextmanager
    def held(self, volume_id: str, *, patience: float = 0.0) -> Iterator[None]:
        """Have a volume of this host to oneself; the end of the process gives it back.

        :param patience: seconds to wait for whoever has it
        :raises LocalConflict: somebody else has it
        :raises HostError: nobody can have it, such as on a full disk
        """
        path = self.folder / "locks" / volume_id
        deadline = time.monotonic() + patience
        while (lock := self._locked(path)) is None:
            if time.monotonic() >= deadline:
                raise exception.LocalConflict(
                    reason=f"Another process of this host works on volume {volume_id} just now. "
                    "Repeat the command when it has ended."
                )
            time.sleep(_NAP)
        with lock:
            try:
                yield
            finally:
                # One for each volume that there ever was would be many.
                with contextlib.suppress(OSError):
                    path.unlink()

    def _locked(self, path: Path) -> IO[str] | None:
        with _told(path):
            self._make(path.parent)
            lock = path.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file meanwhile: then this is nobody's lock.
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        lock.close()
        return None

    def _make(self, folder: Path) -> None:
        for each in (self.folder, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _entries(self) -> Path:
        return self.folder / "attachments"

    def _path(self, entry_id: str) -> Path:
        return self._entries / f"{entry_id}.json"


def _read(path: Path) -> Entry | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        device = values["device"] and Device(**values["device"])
        kinds = {"owner": Owner(values["owner"]), "step": Step(values["step"])}
        return Entry(
            **{**values, **kinds, "device": device, "options": Options(**values["options"])}
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise exception.HostError(
            reason=f"{path} cannot be read ({error}). It tells what is attached on this host: "
            "compare it with the API before you remove it."
        ) from error


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in our own terms what keeps something from being stored."""
    try:
        yield
    except OSError as error:
        raise exception.HostError(
            reason=f"{path} cannot be written: {error.strerror}. Without it nobody would know "
            "after a crash what there is on this host, so nothing more is done until it can be."
        ) from error


def _sync(folder: Path) -> None:
    if not folder.exists():
        return
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
