# SPDX-License-Identifier: Apache-2.0
"""Contract of a storage driver, and its value types; for the manager and for driver authors.

Arguments and results are plain values: a driver knows nothing of rows, requests or policy.  Three
rules make the rest possible:

* **Idempotent.**  Each method may be called again with the same arguments, after a success, a
  failure or a crash in the middle, and ends where one successful call would have ended.
  Deleting or revoking what does not exist is a success.
* **Exact errors.**  Every failure is a :class:`attachd.exception.BackendError`.  It is
  ``final=True`` only when the request surely had no effect and left nothing behind; in doubt
  it is ``final=False``, and the manager undoes or retries.  If the backend is away or does not
  answer, it is a :class:`attachd.exception.BackendUnreachable`: callers are asked to repeat.
  If a program on a host has to close the volume first, it is a
  :class:`attachd.exception.BackendInUse`, which says so: callers get a 409.
* **As the owner.**  Immediately before each single change at the backend, be it a command, a file
  or a row, a driver calls :func:`attachd.drivers.base.check_still_owner`, and lets its exception
  through without changing anything more: another process may work on the volume.  Reads need no
  check, and :meth:`Driver.setup` needs none.

The manager never runs two methods on the same volume at the same time, unless the driver declares
:attr:`Driver.PARALLEL_GRANTS`; methods on different volumes run in parallel, so a driver locks
what its volumes share.  Several clones and snapshots may be made of one volume at the same time.

:class:`Driver` has what each driver does.  What a driver can do beyond that, its abilities, are
further base classes, in abilities.py.  What its backend enforces, it declares in
:attr:`Driver.promises`.
"""

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import contextvars
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar

from oslo_config import cfg

from attachd import exception

AccessMode = Literal["rw", "ro"]
KeyHolder = Literal["caller", "agent", "host"]

Connector = Mapping[str, Any]
"""Connector properties of a host, as os-brick's get_connector_properties() returns them.

``host`` (its name) and, depending on the protocol, ``initiator`` (an IQN), ``nqn``, ``wwpns``,
``ip``, ``multipath`` (bool).  Callers may add other keys; a driver ignores unknown keys and never
assumes a key to be present.
"""


class ConnectionInfo(TypedDict):
    """Connection info for a host, as os-brick's connect_volume() takes it.

    ``data`` is for the connector class that ``driver_volume_type`` names: "iscsi", "local", ...
    """

    driver_volume_type: str
    data: dict[str, Any]


@dataclass(frozen=True)
class VolumeRef:
    """A volume as its driver sees it.

    :ivar id: UUID, the name to use at the backend
    :ivar size_gib: GiB (2**30 bytes)
    :ivar provider: the result of :meth:`Driver.create`: the driver's own data, JSON-able
    :ivar provider_secrets: of the same result, see :class:`WithSecrets`
    :ivar name: display name that users gave it; "" if none; not unique, and they change it
    :ivar project_id: of its owner
    :ivar pool: of the backend; the backend's name if the driver reports no pools
    :ivar multiattach: whether several hosts may have it at the same time
    :ivar extra_specs: of its type
    :ivar qos_specs: limits that the backend enforces, those per GiB converted into limits of this
        volume; front-end limits are not among them: hosts get those from the manager

    The fields from ``name`` on are those of the moment of the call.  Of a volume without a row, as
    an audit finds it, only the id is known.
    """

    id: str
    size_gib: int
    provider: Mapping[str, Any] = field(default_factory=dict)
    provider_secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: str = ""
    project_id: str = ""
    pool: str = ""
    multiattach: bool = False
    extra_specs: Mapping[str, str | None] = field(default_factory=dict)
    qos_specs: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class SnapshotRef:
    """A snapshot of a volume as its driver sees it.

    :ivar id: UUID, the name to use at the backend
    :ivar volume: the volume, which stays as long as it has snapshots
    :ivar size_gib: GiB of the volume when the snapshot was requested
    :ivar provider: the result of ``abilities.Snapshots.create_snapshot``: the driver's own data,
        JSON-able
    :ivar provider_secrets: of the same result, see :class:`WithSecrets`
    """

    id: str
    volume: VolumeRef
    size_gib: int
    provider: Mapping[str, Any] = field(default_factory=dict)
    provider_secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Export:
    """One attachment as the driver sees it.

    :ivar attachment_id: UUID; the same export always has the same id
    :ivar connector: see :data:`Connector`
    :ivar mode: "rw" or "ro", to be enforced by the backend where it can
    :ivar secret: 32 random hexadecimal digits for the connection, stored before the driver is
        called, so that a call with an unknown result is repeated with the same, and any other
        with a new one; exports of one volume that share a
        connection (:meth:`Driver.connection_key`) have the same; for CHAP and the like.  Only
        :meth:`Driver.grant` gets it: for other methods it is empty
    :ivar provider_secrets: of the result of :meth:`Driver.grant`, see :class:`WithSecrets`
    :ivar own_connection: whether it shares no connection with other exports, so that its mode can
        change; the same for each call. Only drivers with the ability ``abilities.SwitchMode`` get
        such exports
    :ivar key_holder: only with :attr:`Driver.LIBVIRT_SECRETS`.  "caller": a key of the connection
        is in its connection info.  "agent": it is not; it is ``key`` of
        :class:`WithSecrets`, and the agent of the host makes a secret of libvirt of it, whose
        UUID is the id of the attachment.  "host": the host has the key of
        :attr:`Driver.has_host_key`, and the connection none
    """

    attachment_id: str
    connector: Connector = field(repr=False)
    mode: AccessMode = "rw"
    secret: str = field(default="", repr=False)
    provider_secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    own_connection: bool = False
    key_holder: KeyHolder = "caller"


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WithSecrets(Generic[Answer]):
    """An answer of a driver, and secrets of its own that are stored encrypted beside it.

    :meth:`Driver.create` and ``abilities.Clone.clone`` return one to keep secrets of a volume,
    ``abilities.Snapshots.create_snapshot`` to keep those of a snapshot, :meth:`Driver.grant`
    to keep secrets of an export: credentials that the backend chose, or a LUN or a namespace
    that must not be known.  Each later call for the volume, the snapshot or the export has them
    in ``provider_secrets``; nothing else shows them: no API, log, error or ``repr``. They are
    decrypted when the driver reads them, which raises SecretUnreadable if the key is missing:
    the driver lets that through.

    The manager stores them after the call.  If its process dies in between they are lost, and the
    next call for the volume or the export has none: the same call again, or :meth:`Driver.delete`
    or :meth:`Driver.revoke`.  So a driver finds what it made by the id of the volume or the
    attachment alone.  A repeated call without secrets reads them from the backend again or
    replaces them by new ones, and returns them; one that has them returns the same or a plain
    answer, which keeps those that are stored.

    :ivar answer: what the method returns without secrets
    :ivar provider_secrets: JSON-able
    """

    answer: Answer = field(repr=False)
    provider_secrets: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class PoolStats:
    """Capacity of one of several pools of a backend.

    :ivar name: as in :attr:`VolumeRef.pool`; it stays the same as long as a volume is in it
    :ivar total_gib: GiB of the pool, or ``inf``; the next two as in :class:`BackendStats`
    :ivar capabilities: those that differ from the backend's
    """

    name: str
    total_gib: float
    free_gib: float
    allocated_gib: float
    capabilities: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BackendStats:
    """Capabilities and capacity of a backend, at one moment.

    :ivar protocol: storage protocol, "iSCSI", "file", ...
    :ivar total_gib: GiB of the backend, or ``inf``
    :ivar free_gib: GiB available for new volumes, or ``inf``
    :ivar allocated_gib: GiB promised to volumes
    :ivar capabilities: compared with a volume type's extra specs, for example ``{"multiattach":
        True, "thin_provisioning": True}``.  The manager adds the driver's abilities and
        :class:`Promises`.  With ``online_clone`` a source is cloned while hosts use it
    :ivar pools: the scheduler chooses one for each volume; none: the backend is one pool.  Their
        capacities are the backend's: :meth:`from_pools` adds them up
    """

    protocol: str
    total_gib: float
    free_gib: float
    allocated_gib: float
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    pools: Sequence[PoolStats] = ()

    @classmethod
    def from_pools(
        cls, protocol: str, pools: Sequence[PoolStats], capabilities: Mapping[str, Any]
    ) -> "BackendStats":
        """Return the stats of a backend with several pools."""
        return cls(
            protocol,
            sum(pool.total_gib for pool in pools),
            sum(pool.free_gib for pool in pools),
            sum(pool.allocated_gib for pool in pools),
            capabilities,
            pools,
        )


@dataclass(frozen=True)
class Promises:
    """What a backend enforces, also against a host that does not cooperate.

    Each is a capability of the same name, and the contract suite tests those that are True.  A
    driver promises no more than its backend keeps: operators choose backends by them.

    :ivar per_host_access: a host reaches a volume only while one of its exports is granted: what
        it was given for other volumes, and the names of this one, are of no use to it.  What it
        keeps of an export after the revoke is a matter of ``detach_proof``
    :ivar read_only_enforced: the backend rejects the writes of a host with mode "ro".  Without it
        a driver refuses "ro"
    :ivar session_end: a revoke succeeds while the host has the volume open, and its next read or
        write fails
    :ivar complete_listing: a host that ``abilities.Audit.list_exports`` does not list does not
        reach the volume
    :ivar detach_proof: a revoke that succeeds proves that the host does not reach the volume any
        more: what it had open was ended, or the backend has seen that it was closed.  Follows
        from ``session_end``
    :ivar frozen_host_cut_off: the same as ``session_end`` and ``complete_listing`` together, but
        only of hosts whose software is not manipulated; they may hang, or be out of reach
    :ivar session_listing: ``abilities.Audit.list_exports`` lists a session of each host that has
        the volume open, unless its software is manipulated, and none of a host that has closed it
    """

    per_host_access: bool = False
    read_only_enforced: bool = False
    session_end: bool = False
    complete_listing: bool = False
    detach_proof: bool = False
    frozen_host_cut_off: bool = False
    session_listing: bool = False


@dataclass(frozen=True)
class BackendExport:
    """The exports of a volume in one mode, as a backend has them at one moment; for audits.

    There is one for each volume and mode of which anything is left at the backend.  Those that
    ``abilities.Audit.expected_exports`` returns are what there should be.

    :ivar volume_id: as in VolumeRef
    :ivar mode: access mode of its hosts; None: of a part that grants no access by itself
    :ivar holders: hosts that have access, now or after a login, by the names that the backend
        uses: initiators (an ACL), or attachment ids where each attachment has access by itself
    :ivar parts: what else is needed for it to work, each with its kind, for people to read: a unit
        in service, the CHAP accounts that are bound to a target, a link under a device.  No
        secrets
    :ivar sessions: connected hosts, by the same names as the holders, as far as the backend knows;
        a session of a host that is no holder is an error.  Never expected
    """

    volume_id: str
    mode: AccessMode | None
    holders: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()


def merge_exports(exports: Iterable[BackendExport]) -> list[BackendExport]:
    """Return one export for each volume and mode, with what all of them have."""
    merged: dict[tuple[str, AccessMode | None], BackendExport] = {}
    for export in exports:
        key = export.volume_id, export.mode
        known = merged.get(key, export)
        merged[key] = BackendExport(
            *key,
            holders=known.holders | export.holders,
            parts=known.parts | export.parts,
            sessions=known.sessions | export.sessions,
        )
    return [*merged.values()]


@dataclass(frozen=True)
class Orphan:
    """An object at a backend that grants no access and belongs to no known volume.

    :ivar name: with its kind, as in :attr:`BackendExport.parts`
    :ivar remedy: what an operator may do about it, in one sentence
    """

    name: str
    remedy: str


class Driver(abc.ABC):
    """One configured backend.

    :param name: the backend's name in ``enabled_backends``; its options are the configuration
        group of that name
    :param conf: the configuration; ``conf[name]`` has :attr:`OPTIONS` registered
    :cvar VENDOR: the capability ``vendor_name``, unless the stats have another
    :cvar SHARED_TARGETS: whether several volumes reach a host through one connection, so that the
        host must not open and close it for two of them at the same time; None: hosts serialize all
        connects and disconnects
    :cvar PARALLEL_GRANTS: whether threads of one process may call :meth:`grant` for exports of one
        volume at the same time, and :meth:`revoke`, too, if no two of the exports are of one host.
        The result is that of the same calls one after the other. A grant and a revoke of one
        volume never run at the same time, except a revoke after a grant that has failed
    :cvar IN_MEMORY: whether all its volumes and exports are in the memory of one process, so that
        an audit by another process cannot compare them
    :cvar KERNEL_DEVICES: whether each host that uses a volume has a block device of its kernel for
        it, of a target whose name ends in the id of the volume, by the rules of agent/strays.py:
        then a host that has none does not use the volume
    :cvar HOSTS_WRITE_SIZES: whether hosts can change the sizes of volumes by which the driver
        knows what is allocated; then the manager reports the sizes in the database
    :cvar LIBVIRT_SECRETS: whether Compute opens the volumes by libvirt, which takes the key of a
        connection from a secret of its own: then each export of Compute has a ``key_holder``
    :ivar has_host_key: whether options name a key that hosts without an agent have; set by
        :meth:`setup`
    :ivar promises: what the backend enforces; where that depends on options, :meth:`setup` sets it
    :ivar storage_ids: what identifies the storage of each pool, set by each :meth:`setup`. The
        manager compares it with what it was when the backend served its first volumes, and uses no
        storage that is another one: with a copied configuration it would take a volume that is
        missing there for one without exports. It comes from the storage, such as the fsid of a
        cluster, and is the same for all managers that share it. By the names of the pools, at most
        255 characters each; by the name of the backend if it reports no pools; empty: the storage
        cannot be told apart
    """

    VENDOR = "attachd"
    SHARED_TARGETS: ClassVar[bool | None] = None
    PARALLEL_GRANTS: ClassVar[bool] = False
    IN_MEMORY: ClassVar[bool] = False
    KERNEL_DEVICES: ClassVar[bool] = False
    HOSTS_WRITE_SIZES: ClassVar[bool] = False
    LIBVIRT_SECRETS: ClassVar[bool] = False
    OPTIONS: Sequence[cfg.Opt] = ()
    has_host_key = False
    promises = Promises()
    storage_ids: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        self.name = name
        self.options = conf[name]

    @abc.abstractmethod
    def setup(self) -> None:
        """Check tools, directories and daemons; called before any other method.

        Called again after a failure of the backend: connections that it opened before may be
        broken.

        :raises BackendError: naming what is missing and the option to set
        """

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Close connections to the backend; called when the process ends, after all other methods.

        Exports stay.  A process that is killed does not call it.
        """

    @abc.abstractmethod
    def get_stats(self) -> BackendStats:
        """Return capabilities and capacity; called periodically, must be quick."""

    @abc.abstractmethod
    def create(self, volume: VolumeRef) -> dict[str, Any] | WithSecrets[dict[str, Any]]:
        """Create an empty volume of ``volume.size_gib``, readable as zeros.

        :returns: the driver's own data of the volume, JSON-able, passed later as
            ``VolumeRef.provider``
        """

    @abc.abstractmethod
    def delete(self, volume: VolumeRef) -> None:
        """Delete the volume and its data.  An unknown volume is a success.

        :raises BackendError: final=True if an export is left: no host loses a volume it uses
        """

    @abc.abstractmethod
    def extend(self, volume: VolumeRef, size_gib: int, exports: Sequence[Export]) -> None:
        """Extend the volume to ``size_gib``.

        A volume that already has that size is a success; shrinking never happens.

        :param exports: all live exports; empty unless the driver has the ability
            ``abilities.OnlineExtend``
        :raises BackendError: final=True if there is no such volume
        """

    @abc.abstractmethod
    def list_volumes(self) -> Mapping[str, int]:
        """List the volumes of the backend with their sizes in bytes, without copies in progress.

        Volumes that are created or deleted meanwhile may be listed or not.

        :raises BackendError: they cannot be listed
        """

    def find_size(self, volume: VolumeRef) -> int | None:
        """Return the size of one volume in bytes; None: it is not there.

        Drivers that need no list for it do better.  A volume that only the backend knows has no
        pool.

        :raises BackendError: that is unknown
        """
        return self.list_volumes().get(volume.id)

    def has_volume(self, volume: VolumeRef) -> bool:
        """Return whether a volume is there.

        :raises BackendError: that is unknown
        """
        return self.find_size(volume) is not None

    def check_connector(self, connector: Connector) -> None:  # noqa: B027  most take any
        """Refuse a connector that lacks what the backend needs, before anything is done.

        :raises InvalidInput: naming the key

        Source: CSI specification, ControllerPublishVolume: INVALID_ARGUMENT.
        """

    def check_access_mode(self, mode: AccessMode) -> None:
        """Refuse a mode that the backend cannot enforce, before anything is done.

        :raises InvalidInput: of the field "mode"; :meth:`grant` then refuses it finally
        """
        if mode == "ro" and not self.promises.read_only_enforced:
            raise exception.InvalidInput(
                field="mode",
                value=mode,
                reason=f"Backend {self.name} cannot keep a host from writing. Attach with mode "
                "rw, or use a backend with read_only_enforced.",
            )

    @abc.abstractmethod
    def grant(
        self, volume: VolumeRef, export: Export
    ) -> ConnectionInfo | WithSecrets[ConnectionInfo]:
        """Give one host access to one volume.

        The same export again returns the same answer, also after the backend was restarted and
        lost it: the answer is stored, and the host uses the stored one.  So names that change over
        a restart, such as the number of a device, must not be in it.

        :param export: its connector may lack what the backend needs: a final error
        :returns: JSON-able; secrets may be in ``data``, and nowhere else: not in an error's
            message, not in a log
        :raises BackendError: final=True if surely not reachable, False if only a retry shows it

        Source: CSI specification, ControllerPublishVolume; Block Storage API, attachments 3.27.
        """

    @abc.abstractmethod
    def revoke(self, volume: VolumeRef, export: Export, others: Sequence[Export]) -> None:
        """Revoke one host's access and end its sessions.

        An export that was never granted is a success, even one whose connector is empty.  All
        access that its attachment ever got ends, in either mode.

        :param others: all other live exports of the volume, which must not be disturbed; some may
            be from the same host and share its access
        :raises BackendError: the host may still reach the volume, for example because it has the
            device open and the backend cannot end that

        Source: CSI specification, ControllerUnpublishVolume.
        """

    def connection_key(self, volume: VolumeRef, export: Export) -> str:  # noqa: ARG002
        """Return the name of the connection through which a granted export is reached.

        Exports with the same name share it: a host that closes it for one of them closes it for
        all.  A pure function of its arguments, also before the grant; the backend is not called.

        :returns: any text; "" for a connection of this export alone

        Source: the specification "Add new attach APIs", shared_connections_by_attachment.
        """
        return ""

    def boot_id(self) -> str:
        """Return an id of the backend's current boot: another answer means that it was restarted.

        All processes that serve the backend get the same answer.  When it changes, the manager
        grants all live exports again.  A backend whose exports survive restarts always returns the
        same.
        """
        return ""


# Ownership.  A process that was suspended, or cut off from the database, may have been declared
# dead: then another one works on its volume.  When the process continues in the middle of a
# driver's method, the check stops it.  The manager installs the check, and a driver calls it:
#
#     base.check_still_owner()
#     self._control.new_target(name)

_check: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar(
    "ownership", default=None
)

_liveness_fds: set[int] = set()


def check_still_owner() -> None:
    """Check that the process still owns the operation of this thread, and may change the backend.

    :raises BackendError: never final: earlier changes may have had effect
    """
    if (check_allowed := _check.get()) is not None:
        check_allowed()


@contextlib.contextmanager
def ownership(check_allowed: Callable[[], None]) -> Iterator[None]:
    """Install the check of the ownership for the block, in this thread.

    :param check_allowed: raises BackendError if changes are not allowed any more
    """
    token = _check.set(check_allowed)
    try:
        yield
    finally:
        _check.reset(token)


# Progress.  The manager installs a function that a driver calls during a long copy:
#
#     base.report_progress(copied / size)

_report: contextvars.ContextVar[Callable[[float], None] | None] = contextvars.ContextVar(
    "progress", default=None
)


def report_progress(fraction: float) -> None:
    """Report how much of the copy of this thread is done, from 0 to 1.

    It may be called often: the manager stores a fraction only now and then.
    """
    if (report := _report.get()) is not None:
        report(fraction)


@contextlib.contextmanager
def progress_scope(report: Callable[[float], None]) -> Iterator[None]:
    """Call a function with the progress that is reported in the block, in this thread."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def liveness_fds() -> tuple[int, ...]:
    """Return the file descriptors that child processes of this process inherit.

    As long as one of them is open this process counts as alive: a tool that has outlived it may
    still change the backend.
    """
    return tuple(_liveness_fds)


def add_liveness_fd(descriptor: int) -> None:
    """Let child processes inherit a file descriptor from now on."""
    _liveness_fds.add(descriptor)


def remove_liveness_fd(descriptor: int) -> None:
    """Undo :func:`add_liveness_fd`."""
    _liveness_fds.discard(descriptor)
