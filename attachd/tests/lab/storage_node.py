# SPDX-License-Identifier: Apache-2.0
"""A driver in a guest with its storage, such as LVM with LIO and nvmet; for this folder's tests.

The driver runs in the guest, as a process that is sent calls; the manager is not there.
"""

from collections.abc import Mapping
import json
from typing import Any
import uuid

from attachd.drivers import base
from attachd.tests.fixtures import processes
from attachd.tests.lab import guests, installation

DISK = "/dev/vdb"
"""The guest's second disk, which becomes the volume group."""

GROUP = "attachd"
POOL = "pool"
DISK_MIB = 12288
PORTS = {"lio": 3260, "nvmet": 4420}
_MAKE_GROUP = f"""\
set -e
modprobe dm_snapshot
vgcreate -q {GROUP} {DISK}
lvcreate -q --type thin-pool --size 4g --zero y --name {POOL} {GROUP}
"""

_RULES = "etc/udev/rules.d/12-attachd.rules"
_INSTALL_RULES = f"cat > /{_RULES} && udevadm control --reload"

# Those of etc/systemd/attachd-manager.service.d/lvm.conf.
_PRIVILEGES = (
    "setpriv",
    "--no-new-privs",
    "--bounding-set=-all,+sys_admin,+sys_nice,+ipc_lock",
    "--inh-caps=-all",
    "--",
)

# Each line of input is a call, each line of output an answer.
_DRIVER = """\
import dataclasses, json, sys, time
from oslo_config import cfg
from attachd.conf import base as base_conf
from attachd.drivers import base
from attachd.exception import AttachdError
from stevedore import driver as entry_point
name, options = sys.argv[1], json.loads(sys.argv[2])
driver_class = entry_point.DriverManager("attachd.drivers", name).driver
conf = cfg.ConfigOpts()
conf([], project="attachd", default_config_files=[])
conf.register_opts(base_conf.OPTIONS)
conf.register_opts(driver_class.OPTIONS, group=name)
for option, value in options.items():
    conf.set_override(option, value, group=name)
driver = driver_class(name, conf)

def decode(value):
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict) and "volume" in value:
        return base.SnapshotRef(**{**value, "volume": decode(value["volume"])})
    if isinstance(value, dict) and "size_gib" in value:
        return base.VolumeRef(**value)
    if isinstance(value, dict) and "attachment_id" in value:
        return base.Export(**value)
    return value

def encode(value):
    if isinstance(value, frozenset):
        return sorted(value)
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else list(value)

def read_snapshot(snapshot, offset, length):
    with driver.open_snapshot(snapshot) as data:
        return data.read(offset, length).hex()

for line in sys.stdin:
    method, *arguments = json.loads(line)
    started = time.monotonic()
    try:
        target = driver if hasattr(driver, method) else driver.target
        function = read_snapshot if method == "read_snapshot" else getattr(target, method)
        found = function(*map(decode, arguments))
        if hasattr(found, "__next__"):
            found = list(found)
        answer = {"value": found}
    except AttachdError as error:
        answer = {"error": str(error), "final": getattr(error, "final", None)}
    answer["seconds"] = time.monotonic() - started
    print(json.dumps(answer, default=encode), flush=True)
"""


def driver_command(name: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command in a guest with attachd that makes the calls of a driver.

    :param name: of the driver, and of its backend
    """
    python = f"{installation.FOLDER}/bin/python"
    return (*_PRIVILEGES, python, "-c", _DRIVER, name, json.dumps(options))


def encode_call(method: str, *arguments: Any) -> str:
    """Return the line of a call; exports, volumes and snapshots are values of drivers/base.py."""
    return json.dumps([method, *map(_encoded, arguments)])


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, base.Export | base.VolumeRef | base.SnapshotRef):
        return {name: _encoded(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


class Refused(Exception):
    """The driver refused a call; the message is its error."""


class StorageNode:
    """A guest with a volume group, and a driver in it.

    :ivar guest: the guest
    :ivar address: where hosts reach it
    :ivar seconds: how long each call took, by the name of its method
    """

    def __init__(self, guest: guests.Guest) -> None:
        self.guest = guest
        self.address = guest.private_address
        self.seconds: dict[str, list[float]] = {}
        self._driver: guests.Program | None = None
        self._options: dict[str, Any] = {}

    def make_group(self) -> None:
        """Make the volume group, and a thin pool in it, on a machine with attachd's udev rules."""
        self.guest.run(_INSTALL_RULES, (processes.ROOT / _RULES).read_bytes())
        self.guest.run(_MAKE_GROUP)

    def start(self, **options: Any) -> None:
        """Start the driver with other options; its setup() is not called yet."""
        self.stop()
        self._options = {"lvm_volume_group": GROUP, **options}
        self._driver = guests.Program(
            self.guest.lab, self.guest.name, *driver_command("lvm", self._options)
        )

    def restart(self) -> None:
        """Start it again with the same options, as after a reboot."""
        self.start(**self._options)

    def complaint(self) -> str:
        """Return the end of the driver's standard error."""
        return self._driver.complaint() if self._driver else ""

    def stop(self) -> None:
        """End the driver."""
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the driver; exports and volumes are values of drivers/base.py.

        ``read_snapshot`` is one that opens a snapshot, and returns some of its bytes in
        hexadecimal digits.

        :raises Refused: with the error of the driver
        """
        assert self._driver is not None
        before = len(self._driver.lines())
        self._driver.write_line(encode_call(method, *arguments))
        answer = json.loads(self._driver.wait_for_lines(before + 1)[-1])
        if "error" in answer:
            raise Refused(answer["error"])
        self.seconds.setdefault(method, []).append(answer["seconds"])
        return answer["value"]

    def create(self, size_gib: int = 1) -> base.VolumeRef:
        """Create a volume."""
        volume = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        self.call("create", volume)
        return volume

    def remove_all(self) -> None:
        """Delete all snapshots and volumes, after all access to them."""
        for name in self.call("list_snapshots"):
            self.call("delete_snapshot", base.SnapshotRef(name, base.VolumeRef("", 1), 1))
        for item in self.call("list_exports"):
            self.call("revoke_all_except", base.VolumeRef(item["volume_id"], 1), [])
        for name in self.call("list_volumes"):
            self.call("delete", base.VolumeRef(name, 1))

    def exports(self, volume: base.VolumeRef) -> list[base.BackendExport]:
        """List the exports of a volume."""
        return _exports(self.call("list_volume_exports", volume))

    def expected(self, volume: base.VolumeRef, *exports: base.Export) -> list[base.BackendExport]:
        """Return what should be listed, without sessions."""
        return _exports(self.call("expected_exports", volume, list(exports)))


def _exports(rows: list[dict[str, Any]]) -> list[base.BackendExport]:
    found = [
        base.BackendExport(
            row["volume_id"],
            row["mode"],
            frozenset(row["holders"]),
            frozenset(row["parts"]),
            frozenset(row["sessions"]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda item: f"{item.mode}")
