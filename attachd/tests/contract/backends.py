# SPDX-License-Identifier: Apache-2.0
"""Backends on which the contract suite runs each driver; for authors of drivers.

A driver of attachd has its backend in :data:`BACKENDS`.  A driver of another package names its own
in its package's metadata, under the entry point :data:`ENTRY_POINT` and the driver's name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
from contextlib import AbstractContextManager
import fcntl
from importlib import metadata
import itertools
import os
from pathlib import Path
from typing import Any
import unittest
import uuid

import fixtures

from attachd.drivers import abilities, base, fake, loop
from attachd.tests.fixtures import (
    ceph,
    fake_lvm,
    initiators,
    processes,
    requirements,
    scsi,
    tgtd,
)
from attachd.tests.wait import TIMEOUT

Refused = initiators.Refused

ENTRY_POINT = "attachd.tests.fixtures.backends"


class Backend(fixtures.Fixture):
    """A backend of a test's own, for one driver; subclasses start what it needs in _setUp().

    :cvar part: of ``tox -e full``, if no other run has it; see selection.py
    :cvar forgets: whether it loses its exports when it is restarted
    :cvar unusable_connectors: connectors with which nothing can be granted
    :cvar knows_missing: whether it detects that a volume does not exist
    :cvar timeout: seconds for one test, which ends with an error at the line that hangs
    """

    part: str = ""
    forgets = True
    unusable_connectors: Sequence[dict[str, Any]] = ()
    knows_missing = True
    timeout = int(TIMEOUT)

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__()
        self.test = test

    def options(self) -> dict[str, Any]:
        """Return the driver's options; asked once, after _setUp()."""
        return {}

    def host(self, name: str) -> initiators.Host | None:
        """Return a host; None where no bytes move."""
        raise NotImplementedError

    def connector(self, name: str) -> dict[str, Any]:
        """Return the connector of a host."""
        host = self.host(name)
        assert host is not None
        return host.connector

    def open(self, name: str, info: initiators.ConnectionInfo) -> initiators.OpenVolume:
        """Open a volume on a host, and keep it open; for the promises about open volumes."""
        raise NotImplementedError

    def restart(self, driver: base.Driver) -> None:
        """Put the backend into the state after a power failure."""
        raise NotImplementedError

    def orphans(self) -> list[str]:
        """List the objects that must not remain without volumes: names, for the message."""
        raise NotImplementedError

    def add_object(self, size_bytes: int) -> dict[str, str] | None:
        """Add an object of zeros that is no volume; return its reference, None if it cannot."""
        return None

    def use_object(self, reference: Mapping[str, str]) -> AbstractContextManager[Any] | None:
        """Use an object for the block; None if it cannot."""
        return None

    def reserve(
        self,
        driver: base.Driver,
        volume: base.VolumeRef,
        export: base.Export,
        info: initiators.ConnectionInfo,
    ) -> bool:
        """Have the host of an export reserve a volume; False if it cannot."""
        return False

    def seen(self, driver: base.Driver) -> Any:
        """Return the state of the backend, for later comparison.

        The more it shows, the more unpermitted changes a test detects.
        """
        exports = list(driver.list_exports()) if isinstance(driver, abilities.Audit) else []
        return exports, dict(driver.list_volumes())


class Fake(Backend):
    """No storage."""

    knows_missing = False

    def host(self, name: str) -> None:
        """No bytes move."""

    def connector(self, name: str) -> dict[str, Any]:
        """The name is enough."""
        return {"host": name}

    def restart(self, driver: base.Driver) -> None:
        """Have the driver lose its exports."""
        assert isinstance(driver, fake.FakeDriver)
        driver.restart()

    def reserve(
        self,
        driver: base.Driver,
        volume: base.VolumeRef,
        export: base.Export,
        info: initiators.ConnectionInfo,
    ) -> bool:
        """Have the driver show one."""
        assert isinstance(driver, fake.FakeDriver)
        kind = "Write Exclusive Access"
        driver.persistent_reservations[volume.id] = abilities.PersistentReservation(
            export.attachment_id, kind
        )
        return True

    def orphans(self) -> list[str]:
        """Return nothing: only the driver has a state, which the suite reads."""
        return []


def _add_file(volumes_dir: Path, size_bytes: int) -> dict[str, str]:
    file = volumes_dir / "manageable" / "added"
    file.touch()
    os.truncate(file, size_bytes)
    return {"source-name": file.name}


def _open_file(volumes_dir: Path, reference: Mapping[str, str]) -> AbstractContextManager[Any]:
    return (volumes_dir / "manageable" / reference["source-name"]).open("rb")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH, 1, 100)
        yield


class Files(Backend):
    """A directory with plain files."""

    forgets = False

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def options(self) -> dict[str, Any]:
        """Take no loop devices, even as root."""
        return {
            "file_folder": f"{self.folder}",
            "file_loop_devices": "never",
            "file_hosts": ["*"],
        }

    def host(self, name: str) -> initiators.Host:
        """This machine."""
        return initiators.LocalHost(name)

    def add_object(self, size_bytes: int) -> dict[str, str]:
        """Add a file."""
        return _add_file(self.folder / "volumes", size_bytes)

    def use_object(self, reference: Mapping[str, str]) -> AbstractContextManager[Any]:
        """Open the file."""
        return _open_file(self.folder / "volumes", reference)

    def open(self, name: str, info: initiators.ConnectionInfo) -> initiators.OpenVolume:
        """Open the file or device."""
        opened = initiators.OpenFile(info)
        self.addCleanup(opened.close)
        return opened

    def restart(self, driver: base.Driver) -> None:
        """Files and links outlive it."""

    def orphans(self) -> list[str]:
        """List files, and devices over them."""
        inner = ("manageable", "snapshots")
        files = [
            *self.folder.glob("*/*"),
            *(file for name in inner for file in self.folder.glob(f"volumes/{name}/*")),
        ]
        always = {".boot_id", *inner}
        return self._used() + [f"{path}" for path in files if path.name not in always]

    def seen(self, driver: base.Driver) -> Any:
        """Return all files, links and devices."""
        files = {path: path.lstat() for path in self.folder.rglob("*")}
        known = [(path, it.st_ino, it.st_size, it.st_blocks) for path, it in files.items()]
        return sorted(known), sorted(self._used())

    def _used(self) -> list[str]:
        return [path for path in loop_backings() if path.startswith(f"{self.folder}/")]


class LoopDevices(Files):
    """A directory, and loop devices over its files."""

    forgets = True

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        requirements.require_root(test)
        requirements.require_device(test, "/dev/loop-control")

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        super()._setUp()
        self._boot_id = self.folder / "boot_id"
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        self.useFixture(fixtures.MonkeyPatch("attachd.linux.boot.ID_FILE", self._boot_id))
        self.addCleanup(self._detach)

    def options(self) -> dict[str, Any]:
        """Fail instead of falling back to files."""
        return {
            "file_folder": f"{self.folder}",
            "file_loop_devices": "always",
            "file_devices_dir": f"{self.folder / 'devices'}",
            "file_hosts": ["*"],
        }

    def restart(self, driver: base.Driver) -> None:
        """Lose all devices and their names, as a boot does."""
        self._detach()
        for name in (self.folder / "devices").iterdir():
            if name.is_symlink():
                name.unlink()
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _detach(self) -> None:
        for path in loop_backings():
            if path.startswith(f"{self.folder}/"):
                loop.detach(Path(path))


class NfsShare(Files):
    """A directory that takes the place of a mounted share: there is no server, and no mount."""

    part = "storage"

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        super()._setUp()
        # As in mountinfo; a server is in test_nfs.py.
        self._table = Path(self.useFixture(fixtures.TempDir()).path) / "mountinfo"
        self.useFixture(fixtures.MonkeyPatch("attachd.drivers.nfs.mounts._MOUNTS", self._table))
        self._show_mounted(self.folder)

    def _show_mounted(self, folder: Path) -> None:
        with self._table.open("a") as table:
            table.write(f"1 0 0:1 / {folder.resolve()} rw - nfs4 127.0.0.1:/volumes rw\n")

    def options(self) -> dict[str, Any]:
        """Let the manager mount nothing."""
        return {"nfs_share": "127.0.0.1:/volumes", "nfs_mount_point": f"{self.folder}"}

    def use_object(self, reference: Mapping[str, str]) -> AbstractContextManager[Any]:
        """Lock a byte of the file for reading, as QEMU does; opening it is not detected."""
        return _locked(self.folder / "volumes" / "manageable" / reference["source-name"])

    def host(self, name: str) -> initiators.Host:
        """A host with the share at the same directory."""
        return initiators.MountHost(name, self.folder)


class NfsPools(NfsShare):
    """The same with another directory, as the pool of a second share."""

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        super()._setUp()
        self.second = Path(self.useFixture(fixtures.TempDir()).path)
        self._show_mounted(self.second)

    def options(self) -> dict[str, Any]:
        """Name both."""
        return {
            **super().options(),
            "nfs_pools": {"second": "127.0.0.1:/second"},
            "nfs_pool_mount_points": {"second": f"{self.second}"},
        }

    def orphans(self) -> list[str]:
        """List the files of both."""
        more = self.second.glob("*/*")
        return super().orphans() + [
            f"{path}" for path in more if path.name not in {"manageable", "snapshots"}
        ]

    def seen(self, driver: base.Driver) -> Any:
        """Return the files of both."""
        return super().seen(driver), sorted(self.second.rglob("*"))


class _OpenTarget:
    """The volume of a session."""

    def __init__(self, session: scsi.Session) -> None:
        self._session = session
        self.close = session.close

    def write(self, offset: int, data: bytes) -> None:
        """Write whole blocks."""
        self._session.write(offset // scsi.BLOCK, data)


class Tgt(Backend):
    """A tgtd, and hosts that speak iSCSI."""

    unusable_connectors = (
        {},
        {"host": "a", "initiator": None},
        {"host": "a", "initiator": ""},
        {"host": "a", "initiator": "ALL"},
        {"host": "a", "initiator": "iqn.2026-01.test:a\niqn.2026-01.test:b"},
        {"host": "a", "initiator": "iqn.2026-01.test:" + "a" * 300},
    )

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        self.tgtd = tgtd.Tgtd(test)
        self._hosts: dict[str, initiators.IscsiHost] = {}

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        self.useFixture(self.tgtd)

    def options(self) -> dict[str, Any]:
        """Return the options for the test's own tgtd."""
        return self.tgtd.options

    def host(self, name: str) -> initiators.Host:
        """Return an initiator named after the host."""
        if name not in self._hosts:
            self._hosts[name] = self.useFixture(initiators.IscsiHost(self.test, name))
        return self._hosts[name]

    def open(self, name: str, info: initiators.ConnectionInfo) -> initiators.OpenVolume:
        """Log in, and not again."""
        return _OpenTarget(scsi.Session(self.test, info, self.connector(name)))

    def add_object(self, size_bytes: int) -> dict[str, str]:
        """Add a file."""
        return _add_file(Path(self.tgtd.options["tgt_volumes_dir"]), size_bytes)

    def use_object(self, reference: Mapping[str, str]) -> AbstractContextManager[Any]:
        """Open the file."""
        return _open_file(Path(self.tgtd.options["tgt_volumes_dir"]), reference)

    def restart(self, driver: base.Driver) -> None:
        """Kill tgtd and start it again."""
        self.tgtd.restart()

    def orphans(self) -> list[str]:
        """List the objects of tgtd, and the files."""
        return self.tgtd.orphans()

    def seen(self, driver: base.Driver) -> Any:
        """Return the state of tgtd, and the files."""
        shown = [self.tgtd.adm("--op", "show", "--mode", text) for text in ("target", "account")]
        return shown, driver.list_volumes()


class Ceph(Backend):
    """A cluster of the test process, and hosts with QEMU; each test has a prefix of its own.

    :cvar pools: of the driver
    """

    part = "storage"
    pools: Sequence[str] = (ceph.POOL,)
    forgets = False

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        self._cluster = ceph.shared(test)
        self._prefix = ceph.new_prefix()
        self._hosts: dict[str, initiators.RbdHost] = {}

    def options(self) -> dict[str, Any]:
        """Return the options for the cluster."""
        return self._cluster.options(self._prefix)

    def host(self, name: str) -> initiators.RbdHost:
        """Return a host that runs QEMU."""
        if name not in self._hosts:
            self._hosts[name] = self.useFixture(initiators.RbdHost(self.test, name))
        return self._hosts[name]

    def open(self, name: str, info: initiators.ConnectionInfo) -> initiators.OpenVolume:
        """Open the image, and not again."""
        return initiators.OpenImage(self.host(name), info)

    def add_object(self, size_bytes: int) -> dict[str, str]:
        """Add an image."""
        name = f"added-{self._prefix}"
        self._cluster.create_image(name, size_bytes, self.pools[0])
        return {"source-name": f"{self.pools[0]}/{name}"}

    def use_object(self, reference: Mapping[str, str]) -> AbstractContextManager[Any]:
        """Open the image."""
        return self._cluster.open_image(reference["source-name"].rpartition("/")[2], self.pools[0])

    def restart(self, driver: base.Driver) -> None:
        """Kill the monitor and the OSD, and start them again."""
        self._cluster.restart()

    def orphans(self) -> list[str]:
        """List images with their snapshots, other objects, and users."""
        beginnings = [
            f"{kind}{name}{self._prefix}" for kind in ("", "rbd_id.") for name in ("", "added-")
        ]
        found = [f"{item}" for pool in self.pools for item in self._images(pool).items()]
        objects = [self._cluster.objects(*beginnings, pool=pool) for pool in self.pools]
        return [*found, *itertools.chain(*objects), *self._users()]

    def seen(self, driver: base.Driver) -> Any:
        """Return the images, their sizes, the users and the blocklist."""
        objects = [self._cluster.objects(self._prefix, pool=pool) for pool in self.pools]
        seen = ([self._images(pool) for pool in self.pools], objects)
        blocklist = sorted(self._cluster.blocklist())
        return *seen, dict(driver.list_volumes()), self._users(), blocklist

    def _images(self, pool: str) -> dict[str, list[str]]:
        return self._cluster.images(self._prefix, pool)

    def _users(self) -> list[str]:
        every = self._cluster.command("auth ls")["auth_dump"]
        # The one with which images are extended stays.
        users = [user for user in every if not user["entity"].endswith("-headers")]
        return [f"{user}" for user in users if self._prefix in user["entity"]]


class CephPools(Ceph):
    """The same with two pools."""

    pools = ("fast", ceph.POOL)

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        self._cluster.add_pool("fast")

    def options(self) -> dict[str, Any]:
        """Return the options with both pools."""
        return {**super().options(), "rbd_pools": ",".join(self.pools)}


class FakeLio(Backend):
    """Fakes of lvm2 and configfs: no bytes move; attachd/tests/lab has real ones."""

    target = "lio"
    unusable_connectors: Sequence[dict[str, Any]] = (
        *Tgt.unusable_connectors,
        {"initiator": "iqn.2026-01.test:a/../b"},
    )

    def _setUp(self) -> None:  # noqa: N802 (the name that fixtures calls)
        self.kernel = self.useFixture(fake_lvm.FakeKernel())
        self._portal = f"127.0.0.1:{processes.free_port()}"

    def options(self) -> dict[str, Any]:
        """Return the options for the fakes; thin volumes."""
        return {
            "lvm_volume_group": fake_lvm.GROUP,
            "lvm_thin_pool": fake_lvm.POOL,
            "lvm_target": self.target,
            "lvm_portals": [self._portal],
        }

    def host(self, name: str) -> None:
        """No bytes move."""

    def add_object(self, size_bytes: int) -> dict[str, str]:
        """Add an LV."""
        self.kernel.lvm.add("added", size_bytes, self.options().get("lvm_thin_pool", ""))
        return {"source-name": f"{fake_lvm.GROUP}/added"}

    def reserve(
        self,
        driver: base.Driver,
        volume: base.VolumeRef,
        export: base.Export,
        info: initiators.ConnectionInfo,
    ) -> bool:
        """Have configfs show what LIO does."""
        (shown,) = self.kernel.tree.root.glob(f"target/core/*/{volume.id}/pr")
        host = export.connector["initiator"]
        (shown / "res_holder").write_text(
            f"SPC-3 Reservation: iSCSI Initiator: {host},i,0x00023d000001\n"
        )
        (shown / "res_pr_holder_tg_port").write_text(
            f"SPC-3 Reservation: iSCSI Target Node Endpoint: {info['data']['target_iqn']}\n"
        )
        (shown / "res_pr_type").write_text("SPC-3 Reservation Type: Write Exclusive Access\n")
        return True

    @contextlib.contextmanager
    def use_object(self, reference: Mapping[str, str]) -> Iterator[None]:
        """Open the device."""
        group, _slash, name = reference["source-name"].partition("/")
        lvm = {fake_lvm.GROUP: self.kernel.lvm, fake_lvm.OTHER_GROUP: self.kernel.other_lvm}
        columns = lvm[group].rows[name]["columns"]
        columns["lv_device_open"] = "open"
        yield
        del columns["lv_device_open"]

    def connector(self, name: str) -> dict[str, Any]:
        """Return the names that os-brick finds."""
        return {
            "host": name,
            "initiator": f"iqn.2026-01.test:{name}",
            "nqn": f"nqn.2026-01.test:{name}",
        }

    def restart(self, driver: base.Driver) -> None:
        """Lose configfs, and deactivate the volumes."""
        self.kernel.boot()

    def orphans(self) -> list[str]:
        """List LVs and objects of configfs."""
        objects = [name for name in self.kernel.tree.state() if "attachd" in name]
        return [*self.kernel.lvm.rows, *self.kernel.other_lvm.rows, *objects]

    def seen(self, driver: base.Driver) -> Any:
        """Return all objects and their values."""
        groups = (self.kernel.lvm.state(), self.kernel.other_lvm.state())
        return self.kernel.tree.state(), groups


class FakeThickLio(FakeLio):
    """The same with thick volumes."""

    part = "storage"

    def options(self) -> dict[str, Any]:
        """Return the options without a thin pool."""
        return {**super().options(), "lvm_thin_pool": "", "lvm_wipe": "zero"}


class FakeLioPools(FakeLio):
    """The same with several pools."""

    part = "storage"

    def options(self) -> dict[str, Any]:
        """Return the options for thick and thin volumes in one volume group, and for another."""
        others = {k: v for k, v in super().options().items() if k in {"lvm_target", "lvm_portals"}}
        thin = f"{fake_lvm.GROUP}/{fake_lvm.POOL}"
        return {**others, "lvm_pools": [fake_lvm.OTHER_GROUP, fake_lvm.GROUP, thin]}


class FakeNvmet(FakeLio):
    """The same with NVMe/TCP."""

    target = "nvmet"
    unusable_connectors = ({}, {"nqn": None}, {"nqn": "nqn.2026-01.test:a/../b"})


BACKENDS: dict[str, Sequence[Callable[[unittest.TestCase], Backend]]] = {
    "fake": [Fake],
    "file": [Files, LoopDevices],
    "lvm": [FakeLio, FakeThickLio, FakeLioPools, FakeNvmet],
    "nfs": [NfsShare, NfsPools],
    "rbd": [Ceph, CephPools],
    "tgt": [Tgt],
}


def find(driver: str) -> Sequence[Callable[[unittest.TestCase], Backend]]:
    """Return the backends to run a driver on; none if no entry point is installed."""
    elsewhere = metadata.entry_points(group=ENTRY_POINT, name=driver)
    return BACKENDS.get(driver, []) or [item.load() for item in elsewhere]


def loop_backings() -> list[str]:
    """List the files of all loop devices of this machine."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        # It may go away while we look.
        with contextlib.suppress(OSError):
            found.append(path.read_text().removesuffix("\n").removesuffix(" (deleted)"))
    return found
