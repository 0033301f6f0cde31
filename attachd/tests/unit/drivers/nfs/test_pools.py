# SPDX-License-Identifier: Apache-2.0
"""Options of pools, and which share a call goes to; tests/contract has the rest."""

from typing import Any, ClassVar
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.nfs import driver as nfs
from attachd.drivers.nfs import pools
from attachd.tests.unit.drivers import configured

OWN = configured.GROUP
FAST = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11", 1, pool="fast")


class FakeShare:
    """Records calls; returns what the test says for a method and share."""

    answers: ClassVar[dict[tuple[str, str], Any]] = {}
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, name, mount_point, *_options):
        self.name, self.mount_point = name, mount_point

    def call(self, method, *arguments):
        self.calls.append((self.name, method, *arguments))
        return self.answers.get((self.name, method))


def listed(name, size=1):
    return {"reference": {"source-name": name}, "size_bytes": size, "refusal": "", "volume_id": ""}


class PoolsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(pools, "Share", FakeShare))
        self.answers = self.enterContext(mock.patch.object(FakeShare, "answers", {}))
        self.calls = self.enterContext(mock.patch.object(FakeShare, "calls", []))

    def pools(self, **options):
        given = {"nfs_share": "s:/own", "nfs_pools": {"fast": "s:/fast"}, **options}
        return pools.Pools(OWN, configured.driver(nfs.NfsDriver, **given).options)

    def files(self, **options):
        return pools.ExistingFiles(self.pools(**options))

    def assert_refused(self, says, **options):
        with self.assertRaisesRegex(exception.BackendError, says) as raised:
            self.pools(**options).check()
        self.assertTrue(raised.exception.final)

    def test_check_refuses_wrong_options_with_their_names(self):
        self.pools().check()
        self.assert_refused("nfs_pools, fast.*SERVER:/PATH", nfs_pools={"fast": "/fast"})
        self.assert_refused("nfs_pools.*'a#b'", nfs_pools={"a#b": "s:/fast"})
        self.assert_refused("not the name of the backend", nfs_pools={OWN: "s:/fast"})
        self.assert_refused("a share twice", nfs_pools={"fast": "s:/own"})
        points = {"fast": "/fast", "slow": "/slow"}
        self.assert_refused("has slow, which", nfs_pool_mount_points=points)

    def test_volume_of_backend_without_pools_stays_in_its_share(self):
        for pool in ("", OWN):
            volume = base.VolumeRef(FAST.id, 1, pool=pool)
            self.assertEqual("s:/own", self.pools().share_of(volume).name)
        self.assertEqual("s:/fast", self.pools().share_of(FAST).name)

    def test_volume_of_pool_without_share_is_refused_with_option(self):
        with self.assertRaisesRegex(exception.BackendError, "pool fast.*nfs_pools") as raised:
            self.pools(nfs_pools={}).share_of(FAST)
        self.assertTrue(raised.exception.final)

    def test_each_share_has_mount_point_of_its_own(self):
        found = self.pools(nfs_mount_point="/own", nfs_pool_mount_points={"fast": "/fast"})
        self.assertEqual("/fast", f"{found.share_of(FAST).mount_point}")
        own = base.VolumeRef(FAST.id, 1)
        self.assertEqual("/own", f"{found.share_of(own).mount_point}")
        self.assertIsNone(self.pools(nfs_mount_point="/own").share_of(FAST).mount_point)

    def test_stats_of_one_share_have_no_pools_and_those_of_two_have(self):
        for number, name in enumerate(("own", "fast"), 1):
            stats = {"total_gib": 9.0 * number, "free_gib": 5.0 * number, "allocated_gib": 1.0}
            self.answers[f"s:/{name}", "stats"] = stats
        found = self.pools(nfs_pools={}).stats({"multiattach": True})
        expected = base.BackendStats("nfs", 9.0, 5.0, 1.0, {"multiattach": True})
        self.assertEqual(expected, found)
        found = self.pools().stats({})
        self.assertEqual((27.0, 15.0, 2.0), (found.total_gib, found.free_gib, found.allocated_gib))
        self.assertEqual([(OWN, 5.0), ("fast", 10.0)], [(p.name, p.free_gib) for p in found.pools])

    def test_files_of_further_pools_are_named_after_them(self):
        for name in ("own", "fast"):
            self.answers[f"s:/{name}", "list_manageable"] = [listed("disk")]
        found = [(it.reference["source-name"], it.pool) for it in self.files().list()]
        self.assertEqual([("disk", OWN), ("fast/disk", "fast")], found)
        (alone,) = self.files(nfs_pools={}).list()
        self.assertEqual(("disk", ""), (alone.reference["source-name"], alone.pool))

    def test_file_is_found_in_pool_of_its_name(self):
        self.answers["s:/fast", "get_manageable"] = listed("disk")
        found = self.files().get({"source-name": "fast/disk"})
        expected = ({"source-name": "fast/disk"}, "fast")
        self.assertEqual(expected, (found.reference, found.pool))
        self.assertEqual(
            [("s:/fast", "get_manageable", "volume", {"source-name": "disk"})], self.calls
        )
        for name in ("slow/disk", "/disk", "../disk", "fast/a/disk"):
            with self.assertRaisesRegex(exception.InvalidInput, "no pool"):
                self.files().get({"source-name": name})

    def test_file_of_another_pool_is_not_managed(self):
        self.files().manage(FAST, {"source-name": "fast/disk"})
        self.assertEqual(
            [("s:/fast", "manage", "volume", FAST.id, 1, {"source-name": "disk"})], self.calls
        )
        with self.assertRaisesRegex(exception.BackendError, "another pool") as raised:
            self.files().manage(FAST, {"source-name": "disk"})
        self.assertTrue(raised.exception.final)
        self.assertEqual(1, len(self.calls))

    def test_file_of_another_pool_does_not_become_a_snapshot(self):
        files = pools.ExistingFiles(self.pools(), "snapshot")
        driver = configured.driver(
            nfs.NfsDriver, nfs_share="s:/own", nfs_pools={"fast": "s:/fast"}
        )
        self.enterContext(mock.patch.object(driver, "existing_snapshots", files))
        for name in ("own", "fast"):
            self.answers[f"s:/{name}", "get_manageable"] = listed("disk")
        for name, refusal in (("fast/disk", ""), ("disk", "another share")):
            found = driver.get_manageable_snapshot(FAST, {"source-name": name})
            self.assertIn(refusal, found.refusal)
            self.assertEqual(bool(refusal), bool(found.refusal))
        self.assertEqual({"snapshot"}, {call[2] for call in self.calls})
        snapshot = base.SnapshotRef("5b0f3a52-5ed0-4a4b-9f0d-6f6a0f1d7a10", FAST, 1)
        with self.assertRaisesRegex(exception.BackendError, "another pool") as raised:
            driver.manage_snapshot(snapshot, {"source-name": "disk"})
        self.assertTrue(raised.exception.final)
