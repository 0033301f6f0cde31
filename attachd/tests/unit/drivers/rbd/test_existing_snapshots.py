# SPDX-License-Identifier: Apache-2.0
"""Which snapshots are refused, on a fake pool; test_rbd_existing_snapshots.py has real ones."""

import dataclasses
import struct
from unittest import mock

from attachd import exception
from attachd.ceph import image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import copies, existing_snapshots
from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase

SNAPSHOT_ID = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0002"
GIB = 2**30


def entry(name="then", size=GIB, kind=0, children=0):
    """Return what the object class answers of a snapshot."""
    space = struct.pack("<2xII", 4, kind)
    end = struct.pack("<QQI", size, 0, children)
    return struct.pack("<6xQ", 7) + space + object_names.encode(name) + end


class ExistingSnapshotsTest(PoolCase):
    def setUp(self):
        super().setUp()
        self.pool.add_header("10ab", snapshot_0000000000000007=b"")
        self.pool.answers |= {"snapshot_get": entry(), "get_protection_status": bytes(1)}
        dump = {"pools": [{"pool_name": "volumes", "snap_seq": 7}]}
        self.enterContext(mock.patch.object(self.driver._cluster, "read", return_value=dump))
        stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))
        self.volume = dataclasses.replace(VOLUME, provider={"image": stored})
        self.snapshot = base.SnapshotRef(SNAPSHOT_ID, self.volume, 1)

    def get(self, name="then"):
        return self.driver.get_manageable_snapshot(self.volume, {"source-name": name})

    def add_record(self, snapshot_id, **values):
        name = f"attachd-snap.{snapshot_id}"
        self.pool.add_record(name, **{"source": NAME, **values})
        return name

    def test_snapshot_is_found_by_its_name_with_and_without_image_and_pool(self):
        for name in ("then", f"{NAME}@then", f"volumes/{NAME}@then"):
            found = self.get(name)
            self.assertEqual(
                (GIB, "", VOLUME.id), (found.size_bytes, found.refusal, found.volume_id)
            )
            self.assertEqual({"source-name": f"{NAME}@then"}, found.reference)
        for name in ("", "other", "@then", f"other@{NAME}", None):
            with self.assertRaises(exception.InvalidInput):
                self.get(name)

    def test_snapshot_in_use_is_refused(self):
        for answers, reason in (
            ({"get_protection_status": b"\1"}, "protected"),
            ({"snapshot_get": entry(children=2)}, "2 clones"),
            ({"snapshot_get": entry(kind=1)}, "a group"),
        ):
            with mock.patch.dict(self.pool.answers, answers):
                self.assertIn(reason, self.get().refusal)
        with mock.patch.dict(self.pool.answers, {"snapshot_get": b"\1"}):
            self.assertIn("cannot be read", self.get("7").refusal)

    def test_snapshot_that_a_host_may_have_forged_is_refused(self):
        self.driver._cluster.read.return_value["pools"][0]["snap_seq"] = 6
        self.assertIn("The pool has no snapshot 7", self.get().refusal)
        self.driver._cluster.read.return_value["pools"][0]["snap_seq"] = 7
        self.pool.add_header("20cd", snapshot_0000000000000007=b"")
        self.rbd.list2.return_value.append({"name": "image", "id": "20cd"})
        self.assertIn("Image image has the same", self.get().refusal)
        self.add_record("other", source="other", source_id="20cd")
        self.assertIn("one of another image", self.get().refusal)

    def test_one_snapshot_too_many_is_refused(self):
        for number in range(existing_snapshots.MAX_SNAPSHOTS):
            self.add_record(f"{number}", snapshot=100 + number)
        self.assertIn("the most it may have", self.get().refusal)

    def test_record_says_whether_a_snapshot_is_managed_unmanaged_or_lost(self):
        self.add_record(SNAPSHOT_ID)
        found = self.get(f"attachd-snap.{SNAPSHOT_ID}")
        self.assertEqual(("already managed", SNAPSHOT_ID), (found.refusal, found.snapshot_id))
        self.assertIn(SNAPSHOT_ID, self.driver.list_snapshots())
        self.driver.unmanage_snapshot(self.snapshot)
        found = self.get(f"attachd-snap.{SNAPSHOT_ID}")
        self.assertEqual(("", ""), (found.refusal, found.snapshot_id))
        self.assertEqual({}, self.driver.list_snapshots())
        self.driver.delete_snapshot(self.snapshot)
        self.assertIn(f"attachd-snap.{SNAPSHOT_ID}", self.pool.objects[copies.RECORDS])
        del self.pool.objects["rbd_header.10ab"]["snapshot_0000000000000007"]
        (found,) = self.driver.list_manageable_snapshots()
        self.assertIn("It is lost", found.refusal)

    def test_repeated_manage_ends_with_the_record_that_is_there(self):
        former = self.add_record("former", released=True)
        name = self.add_record(SNAPSHOT_ID, adopted=True, former=former)
        notes = self.driver.manage_snapshot(self.snapshot, {"source-name": "gone"})
        self.assertEqual({"snapshot": 7}, notes)
        self.assertEqual({name}, self.pool.objects[copies.RECORDS].keys())
        self.assertIn("snapshot_rename", {method for _name, _class, method in self.pool.calls})
