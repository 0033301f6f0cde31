# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the lvm driver on a real LVM, thin and thick, while a host writes."""

import secrets
import uuid

from attachd.drivers import base
from attachd.tests.lab import guests, storage_node, test_lvm
from attachd.tests.lab.test_lvm import GIB, MIB, POOL
from attachd.tests.wait import wait_until

_GROUP = storage_node.GROUP


class LvmSnapshotsTest(test_lvm.Case):
    TARGET = "lio"

    def take(self, volume):
        """Take a snapshot."""
        taken = base.SnapshotRef(f"{uuid.uuid4()}", volume, volume.size_gib)
        self.node.call("create_snapshot", taken)
        self.node.call("create_snapshot", taken)
        return taken

    def manage(self, volume, reference):
        """Make a snapshot of an LV."""
        made = base.SnapshotRef(f"{uuid.uuid4()}", volume, volume.size_gib)
        self.node.call("manage_snapshot", made, reference)
        return made

    def read(self, snapshot, offset, length):
        """Return bytes of a snapshot, which the driver reads."""
        return bytes.fromhex(self.node.call("read_snapshot", snapshot, offset, length))

    def read_volume(self, volume, offset, length):
        """Return bytes of a volume, which a host reads."""
        self.attach(volume, self.b)
        data = self.b.read(offset, length)
        self.detach(volume, self.b)
        return data

    def refused(self, *call):
        """Return the message of a call that is refused."""
        return f"{self.assertRaises(storage_node.Refused, self.node.call, *call)}"

    def listed(self):
        """Return what could be managed, by the name of its LV."""
        found = self.node.call("list_manageable_snapshots")
        return {
            item["reference"]["source-name"].removeprefix(f"{_GROUP}/"): item for item in found
        }

    def written_volume(self, pool):
        """Return a volume of a pool that a host has written to and still has, and the data."""
        self.start(lvm_thin_pool=pool)
        volume, data = self.node.create(), secrets.token_bytes(MIB)
        self.attach(volume, self.a)
        self.a.write(8 * MIB, data)
        return volume, data

    def check_snapshot_of_volume_in_use(self, pool):
        volume, data = self.written_volume(pool)
        writer = guests.Writer(self, self.a, 12 * MIB)
        taken = self.take(volume)
        writer.go_on()
        self.assertGreater(writer.end(), 0)
        self.a.write(8 * MIB, secrets.token_bytes(MIB))
        self.assertEqual([taken.id], list(self.node.call("list_snapshots")))
        self.assertEqual(data, self.read(taken, 8 * MIB, MIB))
        self.node.restart()
        self.node.call("setup")
        self.assertEqual(data, self.read(taken, 8 * MIB, MIB))
        copy = base.VolumeRef(f"{uuid.uuid4()}", 2)
        self.node.call("create_from_snapshot", copy, taken)
        self.assertEqual(data, self.read_volume(copy, 8 * MIB, MIB))
        self.detach(volume, self.a)
        self.node.call("revert", taken)
        self.assertEqual(data, self.read_volume(volume, 8 * MIB, MIB))
        self.node.call("delete_snapshot", taken)
        self.assertEqual({}, self.node.call("list_snapshots"))
        self.assertEqual(data, self.read_volume(copy, 8 * MIB, MIB))
        self.assertEqual(bytes(MIB), self.read_volume(copy, 2 * GIB - MIB, MIB))

    def test_thin_snapshot_of_volume_in_use(self):
        self.check_snapshot_of_volume_in_use(POOL)

    def test_thick_snapshot_of_volume_in_use(self):
        self.check_snapshot_of_volume_in_use("")

    def check_unmanaged_snapshot_is_managed_again(self, pool):
        volume, data = self.written_volume(pool)
        taken = self.take(volume)
        self.a.write(8 * MIB, bytes(MIB))
        name = f"_snapshot-{taken.id}"
        self.assertIn("already managed", self.listed()[f"attachd-{taken.id}.snapshot"]["refusal"])
        self.node.call("unmanage_snapshot", taken)
        self.node.call("unmanage_snapshot", taken)
        self.assertEqual({}, self.node.call("list_snapshots"))
        item = self.listed()[name]
        origin = volume.id if pool else ""
        self.assertEqual(
            ("", "", origin, GIB),
            (item["refusal"], item["snapshot_id"], item["volume_id"], item["size_bytes"]),
        )
        self.check_open_lv_is_refused(volume, name, item["reference"])
        made = self.manage(volume, item["reference"])
        self.assertEqual([made.id], list(self.node.call("list_snapshots")))
        self.assertEqual(data, self.read(made, 8 * MIB, MIB))
        self.detach(volume, self.a)
        self.node.call("revert", made)
        self.assertEqual(data, self.read_volume(volume, 8 * MIB, MIB))

    def check_open_lv_is_refused(self, volume, name, reference):
        storage = self.node.guest
        storage.run(f"lvchange -q --activate y --ignoreactivationskip {_GROUP}/{name}")
        device = f"/dev/{_GROUP}/{name}"
        storage.run(f"sleep 600 < {device} > /dev/null 2>&1 & echo $! > /run/user.pid")
        asked = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        self.assertIn("in use", self.refused("manage_snapshot", asked, reference))
        storage.run("kill $(cat /run/user.pid)")
        wait_until(lambda: not self.listed()[name]["refusal"], timeout=test_lvm.TIMEOUT)

    def test_unmanaged_thin_snapshot_is_managed_again(self):
        self.check_unmanaged_snapshot_is_managed_again(POOL)

    def test_unmanaged_thick_snapshot_is_managed_again(self):
        self.check_unmanaged_snapshot_is_managed_again("")

    def test_thin_snapshot_of_administrator_becomes_one_of_its_volume_alone(self):
        volume, data = self.written_volume(POOL)
        other = self.node.create()
        storage, origin = self.node.guest, f"{_GROUP}/attachd-{volume.id}"
        storage.run(f"lvcreate -q --snapshot --name theirs {origin}")
        # It is of no use to the driver, which would wait for its blocks to be copied.
        storage.run(f"lvcreate -q --snapshot --size 64m --name thick {origin}")
        self.a.write(8 * MIB, bytes(MIB))
        listed = self.listed()
        self.assertEqual(
            ("", volume.id), (listed["theirs"]["refusal"], listed["theirs"]["volume_id"])
        )
        self.assertIn("depends on another LV", listed["thick"]["refusal"])
        theirs = listed["theirs"]["reference"]
        for asked, reference, reason in (
            (other, theirs, f"It is a snapshot of volume {volume.id}."),
            (volume, listed["thick"]["reference"], "depends on another LV"),
            (volume, {"source-name": f"{_GROUP}/{POOL}"}, "no LV for data"),
            (volume, {"source-name": f"{_GROUP}/attachd-{other.id}"}, "must have"),
            (volume, {"source-name": "other/theirs"}, "must have"),
        ):
            snapshot = base.SnapshotRef(f"{uuid.uuid4()}", asked, 1)
            self.assertIn(reason, self.refused("manage_snapshot", snapshot, reference))
        storage.run(f"lvremove -q --yes {_GROUP}/thick")
        made = self.manage(volume, theirs)
        self.assertEqual(data, self.read(made, 8 * MIB, MIB))
        self.detach(volume, self.a)
        self.node.call("revert", made)
        self.assertEqual(data, self.read_volume(volume, 8 * MIB, MIB))
