# SPDX-License-Identifier: Apache-2.0
"""The journal of a host: what is attached, and which step is in progress; a file per attachment.

An entry is written before each step and after it, so that after a crash or a reboot the next
process knows what may be there.  The files hold secrets of connections: they and their directory
are for root alone.
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
import threading
import time
from typing import IO, Any
import uuid

from attachd import exception
from attachd.agent.connectors.base import Device, Options
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.agent.mount.mount_rules import DEFAULTS, MountRules
from attachd.agent.staging import Staging

DEFAULT_STATE_PATH = Path("/var/lib/attachd/host")
"""The default directory of the journal and of all other state of a host."""

_POLL_INTERVAL = 0.05


class Step(enum.StrEnum):
    """The step that was begun last.  It is stored first, so it may have had effect."""

    RESERVING = "reserving"
    CONNECTING = "connecting"
    COMPLETING = "completing"
    MOUNTING = "mounting"
    ATTACHED = "attached"
    UNMOUNTING = "unmounting"
    DISCONNECTING = "disconnecting"
    DELETING = "deleting"


TEARDOWN_STEPS = frozenset({Step.UNMOUNTING, Step.DISCONNECTING, Step.DELETING})
"""Steps of a detach: a process that finds one after a crash continues the detach."""


class Owner(enum.StrEnum):
    """What maintains an attachment: the commands of the command line, or the agent."""

    LOCAL = "local"
    AGENT = "agent"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One volume on this host.

    :ivar id: also the Idempotency-Key of the reservation, to recognize a duplicate
    :ivar attachment_id: None until the service has answered the reservation
    :ivar connection_info: as the API shows it, with secrets; None until it is known
    :ivar mountpoint: where it is mounted, or will be; None: it is not mounted
    :ivar device_numbers: of the device and its partitions, when it was removed by force
    :ivar volume_name: of the volume when it was attached; "" if it is not known
    :ivar made_directories: those that were made for the mountpoint, the deepest first
    :ivar mkfs: the type of file system to make on a device without data; None: make none
    :ivar assume_empty: whether the device has no data by the word of the caller: only signatures
        are looked for before a file system is made
    :ivar mount_rules: what its mount permits
    :ivar formatting: the type of the file system that is being made on the device, which was
        found to be empty; what is there is incomplete.  None: none is being made
    :ivar grow_fs: whether its file system grows with the volume, for commands
    :ivar filesystem: its size when it was read last; None: it was not read yet
    :ivar staging: how containers use it, by a program that asks the agent; None: they do not
    :ivar restoring: it was attached, and is being connected again
    :ivar cloud: the service that it belongs to: the endpoint's URL, for commands with several
    :ivar error: why the last step failed; None: it succeeded, or is in progress
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
    device_numbers: tuple[int, ...] = ()
    volume_name: str = ""
    mountpoint: str | None = None
    made_directories: tuple[str, ...] = ()
    mkfs: str | None = None
    assume_empty: bool = False
    mount_rules: MountRules = DEFAULTS
    formatting: str | None = None
    grow_fs: bool = False
    filesystem: FilesystemState | None = None
    staging: Staging | None = None
    restoring: bool = False
    cloud: str | None = None
    error: str | None = None
    changed_at: str = ""


class Changes:
    """Counts the changes that this process makes to a journal, and lets threads wait for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def notify(self) -> None:
        """Record a change, and wake all that wait."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout: float) -> bool:
        """Wait for a change after an earlier count; return whether there is one.

        :param timeout: in seconds
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.count != count, timeout)


class Journal:
    """The entries of one host.

    :param state_path: its directory, which is made if it is missing
    :ivar changes: by this process
    """

    def __init__(self, state_path: Path = DEFAULT_STATE_PATH) -> None:
        self.state_path = state_path
        self.changes = Changes()
        self._held = threading.local()

    def list_entries(self) -> list[Entry]:
        """Return all entries, oldest change first.

        :raises HostError: one cannot be read; its content is not guessed
        """
        found = [_read(path) for path in self._entries.glob("*.json")]
        entries = [entry for entry in found if entry is not None]
        return sorted(entries, key=lambda entry: (entry.changed_at, entry.id))

    def list_for_volume(self, volume_id: str) -> list[Entry]:
        """Return the entries of one volume, oldest change first."""
        return [entry for entry in self.list_entries() if entry.volume_id == volume_id]

    def get(self, entry_id: str) -> Entry | None:
        """Return one entry, or None if it is gone."""
        return _read(self._path(entry_id))

    def write(self, entry: Entry, **changes: Any) -> Entry:
        """Store an entry with some changes; it is on disk when this returns.

        :raises HostError: it could not be stored, such as on a full disk; the former entry stays
        """
        now = datetime.datetime.now(datetime.UTC).isoformat()
        changed = dataclasses.replace(entry, **changes, changed_at=now)
        path = self._path(entry.id)
        with _write_errors(path):
            self._make_directory(path.parent)
            new = path.with_suffix(".new")
            file = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as output:
                json.dump(dataclasses.asdict(changed), output)
                output.flush()
                os.fsync(output.fileno())
            new.rename(path)
            sync_directory(path.parent)
        self.changes.notify()
        return changed

    def remove(self, entry: Entry) -> None:
        """Remove the entry of a volume that is detached; raises HostError if it cannot."""
        with _write_errors(self._path(entry.id)):
            self._path(entry.id).unlink(missing_ok=True)
            sync_directory(self._entries)
        self.changes.notify()

    @contextlib.contextmanager
    def volume_lock(self, volume_id: str, *, timeout: float = 0.0) -> Iterator[None]:
        """Lock a volume on this host; the end of the process releases the lock.

        :param timeout: seconds to wait for the lock
        :raises LocalConflict: another process or thread has the lock
        :raises HostError: the lock cannot be made, such as on a full disk
        """
        path = self.state_path / "locks" / volume_id
        deadline = time.monotonic() + timeout
        while (lock := self._try_lock(path)) is None:
            if time.monotonic() >= deadline:
                raise exception.LocalConflict(
                    reason=f"Another process of this host works on volume {volume_id} just now. "
                    "Repeat the command when it has ended."
                )
            time.sleep(_POLL_INTERVAL)
        with lock:
            self._held.lock = lock.fileno()
            try:
                yield
            except exception.HostHangs:
                raise  # The process has the lock.
            except BaseException:
                _unlink(path)
                raise
            else:
                _unlink(path)
            finally:
                self._held.lock = None

    def held_lock(self) -> int | None:
        """Return the file descriptor of the volume's lock that this thread holds, if any."""
        lock: int | None = getattr(self._held, "lock", None)
        return lock

    def _try_lock(self, path: Path) -> IO[str] | None:
        with _write_errors(path):
            self._make_directory(path.parent)
            lock = path.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The former holder may have removed the file meanwhile: then this lock is void.
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        lock.close()
        return None

    def _make_directory(self, directory: Path) -> None:
        for path in (self.state_path, directory):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _entries(self) -> Path:
        return self.state_path / "attachments"

    def _path(self, entry_id: str) -> Path:
        return self._entries / f"{entry_id}.json"


def _unlink(lock: Path) -> None:
    """Remove the file of a lock: those of all former volumes would accumulate."""
    with contextlib.suppress(OSError):
        lock.unlink()


def _read(path: Path) -> Entry | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        device = values["device"] and Device(**values["device"])
        state, staging = values.get("filesystem"), values.get("staging")
        enums = {"owner": Owner(values["owner"]), "step": Step(values["step"])}
        return Entry(
            **{
                **values,
                **enums,
                "device": device,
                "options": Options(**values["options"]),
                "filesystem": state and FilesystemState(**state),
                "staging": staging and Staging.read(staging),
                "mount_rules": _read_rules(values.get("mount_rules") or {}),
                "device_numbers": tuple(values.get("device_numbers", ())),
                "made_directories": tuple(values.get("made_directories", ())),
            }
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise exception.HostError(
            reason=f"{path} cannot be read ({error}). It records what is attached on this host: "
            "compare it with the API before you remove it."
        ) from error


def _read_rules(values: dict[str, Any]) -> MountRules:
    return MountRules(tuple(values.get("filesystems", ())), values.get("options", ""))


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Convert errors of a write to HostError."""
    try:
        yield
    except OSError as error:
        raise exception.HostError(
            reason=f"{path} cannot be written: {error.strerror}. After a crash the state of this "
            "host would be unknown, so no step is taken until it can be written."
        ) from error


def sync_directory(directory: Path) -> None:
    """Synchronize a directory, so that its names survive a power failure."""
    if not directory.exists():
        return
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
