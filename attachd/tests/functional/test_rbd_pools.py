# SPDX-License-Identifier: Apache-2.0
"""The driver rbd with several pools."""

import dataclasses
import uuid

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import base
from attachd.tests.fixtures import ceph, initiators
from attachd.tests.functional import multiattach_case
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.selection import full_only
from attachd.tests.unit.drivers import configured

FAST = "fast"
POOLS = [FAST, ceph.POOL]
BLOCK = b"\5" * 4096


@full_only("storage")
class PoolsTest(RbdCase):
    """A driver with one pool, and one that has got another pool."""

    def setUp(self):
        super().setUp()
        self.cluster.add_pool(FAST)
        self.both = self.new_driver(rbd_pools=POOLS)
        self.host = self.useFixture(initiators.RbdHost(self, "a"))

    def ref(self, pool, volume_id=""):
        return base.VolumeRef(volume_id or new_id(), 1, pool=pool)

    def created(self, pool):
        volume = self.ref(pool)
        volume = dataclasses.replace(volume, provider=self.both.create(volume))
        self.addCleanup(self.both.delete, volume)
        return volume

    def test_volume_of_single_pool_stays_reachable_when_another_is_added(self):
        # Without pools the backend's name is that of the pool.
        for pool in (configured.GROUP, ceph.POOL):
            volume, export = self.ref(pool), base.Export(new_id(), {})
            volume = dataclasses.replace(volume, provider=self.driver.create(volume))
            info = self.driver.grant(volume, export)
            self.assertEqual(info, self.both.grant(volume, export))
            self.host.write(info, 0, BLOCK)
            self.both.extend(volume, 2, [export])
            self.assertEqual({volume.id: 2 * GIB}, dict(self.both.list_volumes()))
            copy = base.VolumeRef(new_id(), 2, pool=pool)
            self.both.clone(copy, dataclasses.replace(volume, size_gib=2))
            self.both.delete(copy)
            # An audit knows the id alone.
            unknown = self.ref("", volume.id)
            self.assertEqual(
                set(self.both.expected_exports(unknown, [export])),
                set(self.both.list_volume_exports(unknown)),
            )
            self.both.revoke_all_except(unknown, [])
            self.assertRaises(initiators.Refused, self.host.read, info, 0, 512)
            self.both.delete(unknown)
            self.assertEqual([], self.backend.orphans())

    def test_each_pool_has_its_volumes_and_their_copies(self):
        volume, copy = self.created(FAST), self.ref(FAST)
        self.both.clone(copy, volume)
        self.assertEqual([], self.backend.orphans())
        self.assertEqual({}, dict(self.driver.list_volumes()))
        self.assertEqual({volume.id: GIB, copy.id: GIB}, dict(self.both.list_volumes()))
        self.both.delete(copy)

    def test_key_of_image_does_not_open_image_of_other_pool(self):
        volume, other = (self.created(pool) for pool in POOLS)
        export = base.Export(new_id(), {})
        self.addCleanup(self.both.revoke, volume, export, [])
        info = self.both.grant(volume, export)
        self.host.read(info, 0, 512)
        self.assertTrue(info["data"]["name"].startswith(f"{FAST}/"))
        name = f"{ceph.POOL}/{self.backend.options()['rbd_prefix']}{other.id}"
        tried = {**info, "data": {**info["data"], "name": name}}
        self.assertRaises(initiators.Refused, self.host.read, tried, 0, 512)

    def test_image_is_managed_in_its_pool_which_is_named(self):
        name = f"disk-{new_id()}"
        self.cluster.create_image(name, GIB, FAST)
        reference = {"source-name": f"{FAST}/{name}"}
        item = self.both.get_manageable(reference)
        self.assertEqual((reference, FAST, ""), (item.reference, item.pool, item.refusal))
        self.assertIn(item, list(self.both.list_manageable()))
        for wrong in (name, f"{ceph.POOL}/{name}"):
            with self.assertRaises(exception.InvalidInput):
                self.both.get_manageable({"source-name": wrong})
        with self.assertRaisesRegex(exception.BackendError, "its pool is") as caught:
            self.both.manage(self.ref(ceph.POOL), reference)
        self.assertTrue(caught.exception.final)
        volume = self.ref(FAST)
        self.both.manage(volume, reference)
        self.assertEqual({volume.id: GIB}, dict(self.both.list_volumes()))
        self.both.unmanage(volume)
        (item,) = (item for item in self.both.list_manageable() if volume.id in f"{item}")
        self.assertEqual((FAST, GIB), (item.pool, item.size_bytes))
        with self.cluster.pool(FAST) as pool:
            bindings.load().rbd.RBD().remove(pool, item.reference["source-name"].split("/")[1])


def two_pools(lasting, _folder):
    """Return the options of a backend with two pools."""
    cluster = ceph.shared(lasting)
    cluster.add_pool(FAST)
    cluster.require_statistics(lasting)
    return {**cluster.options(ceph.new_prefix()), "rbd_pools": ",".join(POOLS)}


@full_only("storage")
class ServedTest(multiattach_case.MultiattachCase):
    """Two pools behind a served API."""

    def setUp(self):
        super().setUp()
        self.api = multiattach_case.serve_backend(self, "rbd", two_pools)
        self.host = self.useFixture(initiators.RbdHost(self, "a"))

    def test_type_selects_pool_and_copy_stays_in_it(self):
        listed = self.api.request_json("GET", "/scheduler-stats/get_pools")["pools"]
        self.assertEqual(POOLS, sorted(pool["name"].partition("#")[2] for pool in listed))
        for pool in POOLS:
            specs = {"pool_name": pool, "multiattach": "<is> True"}
            wanted = {"name": f"{uuid.uuid4()}", "extra_specs": specs}
            self.api.request_json("POST", "/types", {"volume_type": wanted})
            volume = self.api.create_volume(volume_type=wanted["name"])
            attachment, info = self.attach(volume, self.host)
            self.host.write(info, 0, BLOCK)
            self.detach(attachment)
            copy = self.api.create_volume(source_volid=volume)
            self.assertEqual(
                [pool] * 2,
                [
                    self.api.volume(item)["os-vol-host-attr:host"].partition("#")[2]
                    for item in (volume, copy)
                ],
            )
            _, info = self.attach(copy, self.host)
            self.assertTrue(info["data"]["name"].startswith(f"{pool}/"))
            self.assertEqual(BLOCK, self.host.read(info, 0, len(BLOCK)))
