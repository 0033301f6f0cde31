# SPDX-License-Identifier: Apache-2.0
"""The command host-strays with the kernel's initiators: iSCSI, multipath, NVMe."""

import json
import secrets
import uuid

from attachd.drivers import base
from attachd.tests.lab import deployment, guests, networks, storage_node

_HOLD = "sleep 600 < {path} > /dev/null 2>&1 & echo $! > /run/user.pid"
_LET_GO = "kill $(cat /run/user.pid); while kill -0 $(cat /run/user.pid) 2> /dev/null; do :; done"
# The sessions stay: multipathd would take their disks up again.
_DELETE_PATHS = """\
set -e
for disk in $(ls /sys/block/{map}/slaves); do echo 1 > /sys/block/$disk/device/delete; done
iscsiadm --mode node --logoutall=all > /dev/null
"""


class StraysTest(deployment.StorageNodeCase):
    """A host with devices of the lvm driver, of which the service knows the volume alone."""

    def setUp(self):
        super().setUp()
        self.service = deployment.LabDeployment(self)
        self.volume = base.VolumeRef(self.service.api.create_volume(), 1)
        self.guest = self.a.guest

    def connect(self, target, *options, addresses=None):
        """Connect the host to the volume, without the service; return the export."""
        portals = [
            f"{address}:{storage_node.PORTS[target]}"
            for address in addresses or [self.node.address]
        ]
        self.node.start(lvm_target=target, lvm_portals=portals, lvm_thin_pool=storage_node.POOL)
        self.node.call("setup")
        self.addCleanup(self.node.remove_all)
        self.node.call("create", self.volume)
        export = base.Export(f"{uuid.uuid4()}", self.guest.connector, "rw", secrets.token_hex(16))
        self.guest.attach(self.node.call("grant", self.volume, export), *options)
        self.addCleanup(self.a.forget)
        return export

    def strays(self, *words):
        """Run the command; return kind, device, state and error of each stray."""
        line = f"host-strays --hostname {self.a.name} -f json {' '.join(words)}"
        said = self.service.run_attachd(self.a, f"{line} || test $? = 1")
        rows = json.loads(said)
        return [(row["Kind"], row["Device"], row["State"], row["Error"]) for row in rows]

    def check_removal(self, kind, device):
        """Check that a stray is kept as long as it is in use, and then removed."""
        self.assertEqual([(kind, device, "unused", None)], self.strays())
        self.guest.run(_HOLD.format(path=device))
        for words in ((), ("--clean",)):
            ((_kind, _device, state, error),) = self.strays(*words)
            self.assertEqual("in use", state)
            self.assertIn("sleep", error)
        self.guest.run(_LET_GO)
        self.assertEqual([(kind, device, "removed", None)], self.strays("--clean"))
        self.assert_is_empty()

    def assert_is_empty(self):
        """Check that the host has neither a device nor a connection."""
        controllers = self.guest.run("ls /sys/class/nvme").decode().split()
        found = (self.guest.devices(), self.guest.sessions(), controllers, self.strays())
        self.assertEqual(([], [], [], []), found)

    def write_late(self):
        """Write through the page cache of the device."""
        data = secrets.token_bytes(guests.BLOCK)
        self.guest.run(f"dd of={self.guest.path} conv=nocreat,notrunc status=none", data)
        return data

    def assert_is_stored(self, data):
        """Check what the storage node has at the start of the volume."""
        device = f"/dev/{storage_node.GROUP}/attachd-{self.volume.id}"
        self.assertEqual(data, self.node.guest.run(f"head --bytes={len(data)} {device}"))

    def test_iscsi_session_is_removed_when_unused(self):
        self.connect("lio")
        data = self.write_late()
        self.check_removal("iscsi", self.real_path())
        self.assert_is_stored(data)

    def real_path(self):
        """Return the device as the kernel names it."""
        return self.guest.run(f"readlink --canonicalize {self.guest.path}").decode().strip()

    def test_iscsi_session_whose_access_was_revoked_is_removed(self):
        export = self.connect("lio")
        self.node.call("revoke", self.volume, export, [])
        device = self.real_path()
        self.assertEqual([("iscsi", device, "unused", None)], self.strays())
        self.strays("--clean", "--force")
        self.assert_is_empty()

    def connect_two_paths(self):
        """Connect the host by two networks; return the multipath device."""
        addresses = []
        for number in (1, 2):
            network = networks.Network(number)
            network.add(self.guest)
            addresses.append(network.add(self.node.guest))
        self.connect("lio", "--multipath", addresses=addresses)
        device = self.real_path()
        self.assertIn("/dev/dm-", device)
        self.assertEqual(2, len(self.guest.sessions()))
        return device

    def test_multipath_device_with_its_sessions_is_removed_when_unused(self):
        device = self.connect_two_paths()
        data = self.write_late()
        self.check_removal("iscsi", device)
        self.assert_is_stored(data)

    def test_multipath_device_without_paths_is_removed_when_unused(self):
        device = self.connect_two_paths()
        self.guest.run(_HOLD.format(path=device))
        self.guest.run(_DELETE_PATHS.format(map=device.rpartition("/")[2]))
        ((kind, name, state, error),) = self.strays("--clean")
        self.assertEqual(("multipath", device, "in use"), (kind, name, state))
        self.assertIn("sleep", error)
        self.guest.run(_LET_GO)
        ((_, _, state, error),) = self.strays("--clean")
        self.assertEqual("unused", state)
        self.assertIn(device, error)
        self.assertEqual([("multipath", device, "removed", None)], self.strays("--clean", device))
        self.assert_is_empty()

    def test_nvme_controller_is_removed_when_unused(self):
        self.connect("nvmet")
        data = self.write_late()
        self.check_removal("nvme", self.real_path())
        self.assert_is_stored(data)

    def test_nvme_controller_whose_access_was_revoked_is_removed_by_force(self):
        export = self.connect("nvmet")
        device = self.real_path()
        self.node.call("revoke", self.volume, export, [])
        deployment.wait_for(lambda: self.guest.run("cat /sys/class/nvme/*/state") != b"live\n")
        self.assertEqual([("nvme", device, "unused", None)], self.strays())
        ((_kind, _device, state, error),) = self.strays("--clean")
        self.assertEqual("failed", state)
        self.assertIn("what was written may be lost", error)
        self.assertEqual([("nvme", device, "removed", None)], self.strays("--clean", "--force"))
        self.assert_is_empty()
