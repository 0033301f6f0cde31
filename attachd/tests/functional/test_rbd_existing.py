# SPDX-License-Identifier: Apache-2.0
"""Images that become volumes of the driver rbd, and volumes that become images again."""

import hashlib
import secrets
import struct

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import base
from attachd.drivers.rbd import users
from attachd.tests.fixtures import ceph, initiators
from attachd.tests.functional import multiattach_case
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

MIB = 2**20


def shared_cluster(lasting, _folder):
    """Return the options of a backend with one pool."""
    cluster = ceph.shared(lasting)
    cluster.require_statistics(lasting)
    return cluster.options(ceph.new_prefix())


@full_only("storage")
class RoundTripTest(multiattach_case.MultiattachCase):
    """An image that a host has filled, behind a served API."""

    def setUp(self):
        super().setUp()
        self.api = multiattach_case.serve_backend(self, "rbd", shared_cluster)
        self.cluster = ceph.shared(self)
        self.host = self.useFixture(initiators.RbdHost(self, "a"))

    def manageable(self):
        listed = self.api.request_json("GET", f"/manageable_volumes/detail?host={self.backend()}")
        return {item["reference"]["source-name"]: item for item in listed["manageable-volumes"]}

    def backend(self):
        return self.api.request_json("GET", "/scheduler-stats/get_pools")["pools"][0]["name"]

    def manage(self, name):
        body = {"volume": {"host": self.backend(), "ref": {"source-name": name}}}
        volume = self.api.request_json("POST", "/manageable_volumes", body)["volume"]
        self.api.wait_for(volume["id"], "available")
        return volume

    def checksum(self, volume, size):
        attachment, info = self.attach(volume["id"], self.host)
        data = self.host.read(info, 0, size)
        self.detach(attachment)
        return hashlib.sha256(data).hexdigest()

    def test_data_survives_manage_and_unmanage(self):
        name, size = f"disk-{new_id()}", 5 * MIB
        data = secrets.token_bytes(size)
        self.cluster.create_image(name, GIB + size)
        with self.cluster.open_image(name) as image:
            image.write(data, 0)
            item = self.manageable()[name]
            self.assertIn("in use", item["reason_not_safe"])
        self.assertEqual(2, self.manageable()[name]["size"])
        for _ in range(2):
            volume = self.manage(name)
            self.assertEqual(2, volume["size"])
            self.assertEqual(hashlib.sha256(data).hexdigest(), self.checksum(volume, size))
            path = f"/volumes/{volume['id']}"
            self.api.request("POST", f"{path}/action", {"os-unmanage": {}})
            wait_until(lambda path=path: self.api.request("GET", path).status == 404)
            (name,) = (known for known in self.manageable() if volume["id"] in known)
        with self.cluster.open_image(name) as image:
            self.assertEqual((2 * GIB, data), (image.size(), image.read(0, size)))
        with self.cluster.pool() as pool:
            bindings.load().rbd.RBD().remove(pool, name)


@full_only("storage")
class RefusalsTest(RbdCase):
    """Images that cannot become volumes, with the reasons."""

    def image(self, size=GIB, **options):
        """Create an image, removed with the test; return its name."""
        name = f"disk-{new_id()}"
        self.cluster.create_image(name, size, **options)
        self.addCleanup(self.remove, name)
        return name

    def remove(self, name):
        with self.cluster.pool() as pool:
            bindings.load().rbd.RBD().remove(pool, name)

    def assert_refused(self, name, reason):
        reference = {"source-name": name}
        self.assertRegex(self.driver.get_manageable(reference).refusal, reason)
        (listed,) = (it for it in self.driver.list_manageable() if it.reference == reference)
        self.assertRegex(listed.refusal, reason)
        volume = base.VolumeRef(new_id(), 1)
        with self.assertRaisesRegex(exception.BackendError, reason) as caught:
            self.driver.manage(volume, reference)
        self.assertTrue(caught.exception.final)
        self.assertEqual({}, dict(self.driver.list_volumes()))

    def test_image_with_snapshot_or_parent_is_refused_until_it_has_none(self):
        rbd, parent, child = bindings.load().rbd, self.image(), f"disk-{new_id()}"
        with self.cluster.open_image(parent) as image:
            image.create_snap("kept")
        self.assert_refused(parent, "snapshots")
        # Its connection makes clones of the second format.
        with self.driver._cluster.pool(ceph.POOL) as pool:
            rbd.RBD().clone(pool, parent, "kept", pool, child)
        self.addCleanup(self.remove, child)
        self.assert_refused(child, "rbd flatten")
        with self.cluster.open_image(parent) as image:
            image.remove_snap("kept")
        # It stays as long as the clone needs it.
        self.assert_refused(parent, "snapshots")
        with self.cluster.open_image(child) as image:
            image.flatten()
        for name in (parent, child):
            self.assertEqual("", self.driver.get_manageable({"source-name": name}).refusal)

    def test_image_with_features_that_hosts_cannot_use_is_refused(self):
        rbd = bindings.load().rbd
        features = rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_JOURNALING
        self.assert_refused(self.image(features=features), "journaling")

    def test_empty_image_is_refused(self):
        self.assert_refused(self.image(0), "empty")

    def test_image_that_a_cephx_user_may_use_is_refused(self):
        name, entity = self.image(), f"client.{new_id()}"
        with self.cluster.open_image(name) as image:
            described = users.Image(ceph.POOL, name, image.id())
        caps = users.as_arguments(users.capabilities(described, "ro"))
        self.cluster.command("auth get-or-create", entity=entity, caps=caps)
        self.addCleanup(self.cluster.command, "auth rm", entity=entity)
        self.assert_refused(name, entity)

    def test_image_that_has_grown_since_it_was_described_is_refused(self):
        name = self.image(GIB + 1)
        with self.assertRaisesRegex(exception.BackendError, "grown") as caught:
            self.driver.manage(base.VolumeRef(new_id(), 1), {"source-name": name})
        self.assertTrue(caught.exception.final)

    def test_copied_volume_and_its_copy_can_be_unmanaged_and_managed_again(self):
        source, copy = self.volume(), base.VolumeRef(new_id(), 1)
        self.driver.clone(copy, source)
        for volume in (source, copy):
            self.driver.unmanage(volume)
            (item,) = (it for it in self.driver.list_manageable() if volume.id in f"{it}")
            self.assertEqual("", item.refusal)
            self.driver.manage(volume, item.reference)
        self.driver.delete(copy)


@full_only("storage")
class InterruptedTest(RbdCase):
    """A manager that was killed while it renamed an image."""

    def test_killed_manage_and_unmanage_can_be_repeated(self):
        volume, name = self.volume(), f"disk-{new_id()}"
        for number in self.each_death("unmanage", volume):
            self.driver.unmanage(volume)
            (item,) = (it for it in self.driver.list_manageable() if volume.id in f"{it}")
            self.driver.manage(volume, item.reference)
            self.assertEqual({volume.id: GIB}, dict(self.driver.list_volumes()), number)
        self.driver.delete(volume)
        before = self.backend.orphans()
        self.cluster.create_image(name, GIB - 1)
        reference = {"source-name": name}
        for number in self.each_death("manage", volume, reference):
            self.driver.manage(volume, reference)
            self.assertEqual({volume.id: GIB}, dict(self.driver.list_volumes()), number)
            self.driver.delete(volume)
            self.assertEqual(before, self.backend.orphans(), number)
            self.cluster.create_image(name, GIB - 1)
        self.driver.delete(volume)

    def test_rename_interrupted_within_librbd_is_completed(self):
        volume, name = base.VolumeRef(new_id(), 1), f"disk-{new_id()}"
        target = f"{self.backend.options()['rbd_prefix']}{volume.id}"
        self.cluster.create_image(name, GIB)
        self.addCleanup(self.driver.delete, volume)
        # The new name has been added, and the directory of images not changed.
        self.add_name(target, name)
        self.assertEqual({}, dict(self.driver.list_volumes()))
        self.driver.manage(volume, {"source-name": name})
        # The old name has not been removed.
        self.add_name(name, target)
        self.driver.manage(volume, {"source-name": name})
        self.assertEqual({volume.id: GIB}, dict(self.driver.list_volumes()))
        self.assertEqual([], self.cluster.objects(f"rbd_id.{name}"))

    def test_unmanage_of_image_whose_manage_was_interrupted_keeps_its_name(self):
        volume, name = base.VolumeRef(new_id(), 1), f"disk-{new_id()}"
        target = f"{self.backend.options()['rbd_prefix']}{volume.id}"
        self.cluster.create_image(name, GIB)
        self.add_name(target, name)
        self.driver.unmanage(volume)
        self.assertEqual([], self.cluster.objects(f"rbd_id.{target}"))
        self.assertEqual("", self.driver.get_manageable({"source-name": name}).refusal)
        self.driver.manage(volume, {"source-name": name})
        self.driver.delete(volume)

    def add_name(self, added, name):
        """Add the object of a name that an image does not have."""
        with self.cluster.open_image(name) as image:
            image_id = image.id().encode()
        with self.cluster.pool() as pool:
            pool.write_full(f"rbd_id.{added}", struct.pack("<I", len(image_id)) + image_id)
