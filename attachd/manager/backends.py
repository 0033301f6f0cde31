# SPDX-License-Identifier: Apache-2.0
"""The configured backends and their drivers, and rows as arguments of drivers.

Backends are made once per manager process.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
from contextlib import AbstractContextManager
import dataclasses
import functools
import hashlib
import itertools
import pathlib
from typing import Any, Final, NamedTuple, TypedDict

from oslo_log import log
from stevedore import driver as entry_point

from attachd import conf, exception, states
from attachd.conf import CONF
from attachd.db.attachments import attachment_rows
from attachd.db.cluster import volume_leases
from attachd.db.row_types import AttachmentRow, DriverVolume, LockedVolumeRow, SnapshotRow
from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import Encrypted
from attachd.drivers import abilities, base
from attachd.drivers.base import (
    ConnectionInfo,
    Export,
    KeyHolder,
    SnapshotRef,
    VolumeRef,
    WithSecrets,
)
from attachd.lost_agents import NO_RULE, Action, Rule
from attachd.manager import flow_runner, storage_identity
from attachd.manager.background_tasks import BackgroundTasks
from attachd.manager.ownership import joint_work, volume_lease
from attachd.manager.ownership.joint_work import Begin, VolumeWork
from attachd.manager.ownership.membership import Membership
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)


class ImageCacheLimits(NamedTuple):
    """The limits of the image cache of a backend; 0: unlimited.

    :ivar timeout: in seconds, of the wait for an image that another volume imports
    """

    entries: int
    gib: int
    timeout: int


class Backend:
    """One configured backend: its driver, whether it is ready, and its locks.

    :ivar name: the configuration group
    :ivar host: ``host@backend``, the name of its RPC server
    :ivar error: why it is not ready; None: it is ready
    :ivar boot_id: of its present start, as far as it was read
    :ivar membership: of this process, in the group of managers
    :ivar background_tasks: its long operations in this process
    :ivar lost_agent_rule: what is done about a host with one of its volumes
    :ivar secret_length: in characters, of the secret of a new connection
    :ivar image_cache: the limits of its image cache; None: it has none
    """

    def __init__(
        self,
        name: str,
        driver: base.Driver,
        membership: Membership | None = None,
        lost_agent_rule: Rule = NO_RULE,
        secret_length: int = conf.manager.MAX_CHAP_SECRET,
        image_cache: ImageCacheLimits | None = None,
    ) -> None:
        self.name = name
        self.secret_length = secret_length
        self.image_cache = image_cache
        self.lost_agent_rule = lost_agent_rule
        self.membership = membership or Membership()
        self.host = f"{CONF.host}@{name}"
        self.driver = driver
        self.error: str | None = "The backend has not been set up yet."
        self.boot_id: str | None = None
        self.background_tasks = BackgroundTasks(name, CONF.manager.copies_per_backend)

    @property
    def calls_per_volume(self) -> int:
        """How many calls for one volume may run at the same time."""
        return joint_work.MAX_WAITING if self.driver.PARALLEL_GRANTS else 1

    def setup(self) -> bool:
        """Try to make the backend ready; if that fails, ``error`` has the reason."""
        try:
            self.check_lock_files()
            self.driver.setup()
            storage_identity.check(self.host, self.driver)
        except Exception as error:  # noqa: BLE001  logged there
            self.take_down(error)
        else:
            self.error = None
        return self.error is None

    def take_down(self, error: Exception) -> None:
        """Refuse operations until the backend is set up again; log each new reason once."""
        reason = flow_runner.reason(error)
        if reason != self.error:
            LOG.error("Backend %s is down", self.name, exc_info=error)
        self.error = reason

    def check_ready(self) -> None:
        """Raise BackendUnavailable while the backend is down."""
        if self.error is not None:
            raise exception.BackendUnavailable(reason=f"Backend {self.name} is down: {self.error}")

    def volume_lease(self, volume_id: str) -> AbstractContextManager[VolumeLease]:
        """Have exclusive access to a volume from the first move on.

        ::

            with backend.volume_lease(volume_id) as acquired:
                acquired.run_with_lease(lambda token: transition(..., volume_lease=token))

        :raises Unavailable: other operations hold it for too long
        """
        waiting = volume_lease.acquire(self.membership, volume_id, _lock_path(volume_id))
        return volume_lease.timed(self.host, waiting)

    def work(self, begin: Begin) -> AbstractContextManager[VolumeWork]:
        """Begin work on an attachment, and have access to its volume until the end of the block.

        With a driver that grants in parallel, others who do the same with attachments of other
        hosts have access as well.

        :raises: as attachment_store.transition(), and Unavailable: other operations hold the
            volume for too long
        """
        acquire = functools.partial(self.volume_lease, begin.volume_id)
        if self.driver.PARALLEL_GRANTS:
            return joint_work.join(begin, acquire, _lock_path(begin.volume_id))
        return joint_work.begin_alone(begin, acquire)

    @contextlib.contextmanager
    def lock(self, volume_id: str) -> Iterator[VolumeLease]:
        """Have exclusive access to a volume at once, at the price of two transactions.

        :raises VolumeNotFound: there is no such volume
        :raises Unavailable: other operations hold it for too long
        """
        with self.volume_lease(volume_id) as acquired:
            acquired.run_with_lease(volume_leases.acquire_committed)
            yield acquired

    @contextlib.contextmanager
    def lock_snapshot(self, snapshot_id: str) -> Iterator[VolumeLease]:
        """Have exclusive access to a snapshot, as :meth:`lock` gives it to a volume.

        Its volume may be attached and detached meanwhile.  A thread that needs the locks of both
        takes that of the volume first.

        :raises SnapshotNotFound: there is no such snapshot
        :raises Unavailable: other operations hold it for too long
        """
        path, table = _lock_path(snapshot_id), volume_leases.SNAPSHOTS
        waiting = volume_lease.acquire(self.membership, snapshot_id, path, table)
        with volume_lease.timed(self.host, waiting) as acquired:
            acquired.run_with_lease(volume_leases.acquire_committed)
            yield acquired

    def is_idle(self, volume_id: str) -> bool:
        """Return whether no thread of this machine has the lock of a volume or snapshot now."""
        return volume_lease.is_lock_free(_lock_path(volume_id))

    def orphaned_leases(self) -> list[str]:
        """Return the volumes whose lease this process or a dead one holds without working."""
        volume_ids = volume_leases.list_orphaned(self.host, self.membership.id)
        return [volume_id for volume_id in volume_ids if self.is_idle(volume_id)]

    def orphaned_snapshot_leases(self) -> list[str]:
        """Return such snapshots."""
        ids = volume_leases.list_orphaned_snapshots(self.host, self.membership.id)
        return [snapshot_id for snapshot_id in ids if self.is_idle(snapshot_id)]

    def check_lock_files(self) -> None:
        """Check that this process can lock volumes.

        :raises Unavailable: its state path is full or read-only, or too many files are open
        """
        volume_lease.check_lock_files(f"{_locks_dir()}/check-{self.membership.id}-{self.name}")

    def delete_lock_files(self, volume_id: str) -> None:
        """Remove the lock files of a deleted volume; the last holder does so.

        Other threads may still wait for the lock: they will find that the volume is deleted.
        """
        volume_lease.delete_lock_files(_lock_path(volume_id))


def _locks_dir() -> str:
    return f"{CONF.state_path}/locks"


def _lock_path(volume_id: str) -> str:
    return f"{_locks_dir()}/attachd-volume-{volume_id}"


def load(membership: Membership | None = None) -> list[Backend]:
    """Make a backend of each name in ``enabled_backends``.

    :param membership: of the process that is going to work on them; None: none is
    :raises ConfigurationError: a backend has no ``driver``, or one that is not installed
    """
    pathlib.Path(_locks_dir()).mkdir(mode=0o700, parents=True, exist_ok=True)
    return [
        Backend(
            name,
            _driver(name),
            membership,
            _lost_agent_rule(name),
            CONF[name].chap_secret_length,
            _image_cache_limits(name),
        )
        for name in CONF.enabled_backends
    ]


def _lost_agent_rule(name: str) -> Rule:
    options = CONF[name]
    return Rule(Action(options.on_lost_agent), options.lost_agent_timeout)


def _image_cache_limits(name: str) -> ImageCacheLimits | None:
    options = CONF[name]
    if not options.image_cache_enabled:
        return None
    return ImageCacheLimits(
        options.image_cache_max_entries, options.image_cache_max_gib, options.image_cache_timeout
    )


def _driver(name: str) -> base.Driver:
    CONF.register_opts(conf.manager.BACKEND_OPTIONS, group=name)
    entry = CONF[name].driver
    if not entry:
        raise exception.ConfigurationError(
            reason=f"Backend {name} is in enabled_backends, but [{name}] has no option driver."
        )
    try:
        driver_class: Any = entry_point.DriverManager("attachd.drivers", entry).driver
    except RuntimeError as error:
        raise exception.ConfigurationError(
            reason=f"[{name}]driver: there is no storage driver {entry!r}."
        ) from error
    CONF.register_opts(driver_class.OPTIONS, group=name)
    conf.checking.check_values(CONF, name)
    driver: base.Driver = driver_class(name, CONF)
    return driver


_LIMITS: Final = tuple(
    f"{operation}_{unit}_sec"
    for operation, unit in itertools.product(("read", "write", "total"), ("iops", "bytes"))
)

Specs = dict[str, str | int | None]

PROVIDER_SECRETS: Final = "provider_secrets"
"""The column for what a driver returned by base.WithSecrets."""


Listing = Mapping[str, Sequence[base.BackendExport]]
"""What a backend exports, by volume."""


def list_exports(backend: Backend) -> Listing | None:
    """Return what a backend exports; None: it is not known, or its driver cannot list that."""
    try:
        return abilities.list_exports(backend.driver)
    except exception.BackendError as error:
        LOG.warning("Backend %s: its exports cannot be listed: %s", backend.name, error)
        return None


class SecretsRow(TypedDict):
    """A row that may have provider secrets."""

    id: str
    provider_secrets: dict[str, Any] | Encrypted | None


class ExportRow(SecretsRow):
    """What a driver gets of an attachment."""

    connector: dict[str, Any] | None
    mode: str | None
    own_connection: bool | None


class _ProviderSecrets(Mapping[str, Any]):
    """The encrypted provider secrets of a row, decrypted when they are read."""

    def __init__(self, row: SecretsRow, table: str) -> None:
        self._row = {"id": row["id"], PROVIDER_SECRETS: row[PROVIDER_SECRETS]}
        self._table = table

    def __getitem__(self, key: str) -> Any:
        return self._decrypted[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decrypted)

    def __len__(self) -> int:
        return len(self._decrypted)

    @functools.cached_property
    def _decrypted(self) -> dict[str, Any]:
        decrypted: dict[str, Any] = encryption.decrypted(self._row, PROVIDER_SECRETS, self._table)
        return decrypted


def _provider_secrets(row: SecretsRow, table: str) -> Mapping[str, Any]:
    return _ProviderSecrets(row, table) if row[PROVIDER_SECRETS] else {}


def split_secrets(answer: Any) -> tuple[Any, dict[str, Any]]:
    """Return a driver's answer without its secrets, and the columns to store them with it."""
    if isinstance(answer, WithSecrets):
        return answer.answer, {PROVIDER_SECRETS: dict(answer.provider_secrets)}
    return answer, {}


def snapshot_ref(row: SnapshotRow, volume: DriverVolume) -> SnapshotRef:
    """Return a snapshot's row as its driver takes it.

    :param volume: the row of its volume
    """
    return SnapshotRef(
        row["id"],
        volume_ref(volume),
        row["size_gib"],
        row["provider"] or {},
        _provider_secrets(row, encryption.SNAPSHOTS),
    )


def volume_ref(row: DriverVolume) -> VolumeRef:
    """Return a volume's row as its driver takes it."""
    return VolumeRef(
        row["id"],
        row["size_gib"],
        row["provider"] or {},
        _provider_secrets(row, encryption.VOLUMES),
        name=row["name"] or "",
        project_id=row["project_id"],
        pool=(row["host"] or "").partition("#")[2],
        multiattach=row["multiattach"],
        extra_specs=row["type_specs"] or {},
        qos_specs=scale_qos(row["back_end_qos"], row["size_gib"]) if row["back_end_qos"] else {},
    )


def export(row: ExportRow) -> Export:
    """Return an attachment's row as its driver takes it for calls that grant nothing.

    It has no secret, and its provider secrets are decrypted when the driver reads them: access can
    be revoked even if a secret that is not needed for it cannot be decrypted.
    """
    mode: Any = row["mode"] or "rw"
    return Export(
        row["id"],
        row["connector"] or {},
        mode,
        provider_secrets=_provider_secrets(row, encryption.ATTACHMENTS),
        own_connection=bool(row["own_connection"]),
        key_holder=_find_key_holder(row),
    )


def _find_key_holder(row: ExportRow) -> KeyHolder:
    if row.get("secret_agent"):
        return "agent"
    return "host" if attachment_rows.is_of_compute(row) and not row.get("agent") else "caller"


def export_with_secret(row: AttachmentRow) -> Export:
    """Return an attachment's row as its driver takes it for a grant.

    :raises SecretUnreadable: its secret cannot be decrypted
    """
    return dataclasses.replace(export(row), secret=encryption.decrypted(row, "secret") or "")


def connection_info(row: AttachmentRow) -> ConnectionInfo | None:
    """Return the connection of an attachment as its driver has returned it; None: not connected.

    :raises SecretUnreadable: it cannot be decrypted
    """
    decrypted: ConnectionInfo | None = encryption.decrypted(row, "connection_info")
    return decrypted


def connection_key(backend: Backend, volume: VolumeRef, granted: Export) -> str | None:
    """Return a key that is equal for attachments that share a connection to this backend.

    :returns: 64 hexadecimal digits, since drivers may name it as they like; None: the connection
        is not shared
    """
    name = backend.driver.connection_key(volume, granted)
    return hashlib.sha256(f"{backend.host} {name}".encode()).hexdigest() if name else None


def live_exports(rows: Sequence[AttachmentRow]) -> list[Export]:
    """Return the exports of those attachments whose hosts reach the volume and should."""
    return [
        export(row)
        for row in rows
        if AttachmentState(row["state"]) in states.LIVE and row["connector"] is not None
    ]


def with_qos(connection: ConnectionInfo, volume: LockedVolumeRow) -> ConnectionInfo:
    """Return a connection with the limits that its host has to set for the volume, if any."""
    specs = volume["front_end_qos"]
    if specs is None:
        return connection
    data = {**connection["data"], "qos_specs": scale_qos(specs, volume["size_gib"])}
    return {**connection, "data": data}


def with_mode(connection: ConnectionInfo, mode: str) -> ConnectionInfo:
    """Return a connection that names the mode of its host."""
    return {**connection, "data": {**connection["data"], "access_mode": mode}}


def scale_qos(specs: Mapping[str, str | None], size_gib: int) -> Specs:
    """Convert limits per GiB into limits of a volume; all other keys stay as they are.

    ``total_iops_sec_per_gb`` becomes ``total_iops_sec``, not less than
    ``total_iops_sec_per_gb_min`` and not more than ``total_iops_sec_max``.

    Source: the Block Storage service's administration guide, basic volume quality of service.
    """
    scaled: Specs = dict(specs)
    for limit in _LIMITS:
        per_gib = _number(scaled, f"{limit}_per_gb")
        if per_gib is None:
            continue
        value = per_gib * size_gib
        least, most = _number(scaled, f"{limit}_per_gb_min"), _number(scaled, f"{limit}_max")
        value = value if least is None else max(value, least)
        scaled[limit] = value if most is None else min(value, most)
        for key in (f"{limit}_per_gb", f"{limit}_per_gb_min", f"{limit}_max"):
            scaled.pop(key, None)
    return scaled


def _number(specs: Mapping[str, str | int | None], key: str) -> int | None:
    text = str(specs.get(key))
    return int(text) if text.isascii() and text.isdecimal() else None
