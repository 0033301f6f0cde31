# SPDX-License-Identifier: Apache-2.0
"""Volumes of images that a real Glance keeps in the same Ceph."""

import contextlib
import secrets

import requests

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import abilities, base
from attachd.tests.fixtures import (
    ceph,
    deployments,
    glance_fixture,
    http_client,
    initiators,
    keystone_fixture,
    lifetime,
)
from attachd.tests.functional import multiattach_case
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only

MIB = 2**20
DATA = b"\1" * 4096


class ImagePoolCase(RbdCase):
    """A driver that may clone images, and images as Glance stores them."""

    def setUp(self):
        super().setUp()
        self.cluster.add_image_pool()
        options = {**self.backend.options(), "rbd_image_pools": ceph.IMAGE_POOL}
        self.backend.options = lambda: options
        self.driver = self.new_driver()
        self.fsid = self.cluster.admin().get_fsid()

    def add_image(self, name=None, pool=ceph.IMAGE_POOL, size=8 * MIB):
        name = name or new_id()
        self.cluster.create_image(name, size, pool)
        with self.cluster.open_image(name, pool) as image:
            image.write(DATA, 0)
            image.create_snap("snap")
            image.protect_snap("snap")
        self.addCleanup(self.remove_image, name, pool)
        return name

    def remove_image(self, name, pool=ceph.IMAGE_POOL):
        with self.cluster.open_image(name, pool) as image:
            image.unprotect_snap("snap")
            image.remove_snap("snap")
        with self.cluster.pool(pool) as ioctx:
            bindings.load().rbd.RBD().remove(ioctx, name)

    def stored(self, image_id, *locations, size=8 * MIB):
        return abilities.StoredImage(image_id, size, locations)

    def url(self, image, pool=ceph.IMAGE_POOL, snapshot="snap", fsid=None):
        return f"rbd://{fsid or self.fsid}/{pool}/{image}/{snapshot}"

    def children(self, image_id):
        with (
            self.cluster.pool(ceph.IMAGE_POOL) as ioctx,
            bindings.load().rbd.Image(ioctx, image_id, snapshot="snap") as image,
        ):
            return list(image.list_children2())


class LocationTest(ImagePoolCase):
    def clone(self, image):
        volume = base.VolumeRef(new_id(), 1)
        self.addCleanup(self.driver.delete, volume)
        return volume, self.driver.clone_image(volume, image)

    def test_clone_has_data_and_size_and_shares_nothing(self):
        image = self.add_image()
        volume, answer = self.clone(self.stored(image, self.url(image)))
        self.assertEqual({volume.id: GIB}, dict(self.driver.list_volumes()))
        self.assertEqual([], self.children(image))
        cloned = base.VolumeRef(volume.id, 1, answer)
        with self.driver.open_data(cloned, "ro") as data:
            self.assertEqual(DATA + bytes(4096), data.read(0, 8192))
            self.assertEqual(bytes(4096), data.read(GIB - 4096, 4096))
        export, info = self.granted(cloned)
        host = self.useFixture(initiators.RbdHost(self, "a"))
        self.assertEqual(DATA, host.read(info, 0, 4096))
        self.driver.revoke(cloned, export, [])

    def test_later_location_is_used_if_the_first_is_not_true(self):
        image = self.add_image()
        urls = ("file:///etc/passwd", self.url(image, fsid=new_id()), self.url(image))
        self.assertIsNotNone(self.clone(self.stored(image, *urls))[1])

    def test_untrue_locations_are_not_cloned(self):
        image, other, volume = self.add_image(), self.add_image(), self.volume()
        own = f"{self.backend.options()['rbd_prefix']}{volume.id}"
        in_volumes = self.add_image(new_id(), ceph.POOL)
        for url in (
            self.url(other),
            self.url(own, ceph.POOL),
            self.url(in_volumes, ceph.POOL),
            self.url(image, "none"),
            self.url(image, fsid=new_id()),
            self.url(image, snapshot="none"),
            self.url(f"{image}%00"),
            f"rbd://{image}",
            f"rbd:///{ceph.IMAGE_POOL}/{image}/snap",
            self.url(image).replace("rbd://", "http://"),
            "",
        ):
            for image_id in (image, in_volumes, own) if ceph.POOL in url else (image,):
                with self.subTest(url=url, image=image_id):
                    self.assertIsNone(self.clone(self.stored(image_id, url))[1])
        self.assertIsNone(self.clone(self.stored(image, self.url(image), size=4 * MIB))[1])
        self.assertEqual([volume.id], list(self.driver.list_volumes()))

    def test_deleted_clone_that_was_not_complete_is_forgotten_by_its_image(self):
        image, volume = self.add_image(), base.VolumeRef(new_id(), 1)
        clone = f"{self.backend.options()['rbd_prefix']}copy.{volume.id}.image"
        with self.cluster.pool(ceph.IMAGE_POOL) as images, self.cluster.pool() as pool:
            bindings.load().rbd.RBD().clone(images, image, "snap", pool, clone)
        self.assertEqual(1, len(self.children(image)))
        self.assertIn(clone, [item.name.split()[1].rstrip(",") for item in self.orphans()])
        self.driver.delete(volume)
        self.assertEqual([], self.children(image))
        self.assertEqual([], self.orphans())

    def orphans(self):
        return list(self.driver.list_orphans())


@full_only("storage")
class DeletedImageTest(ImagePoolCase):
    """An image that is deleted, as far as Ceph allows it, while a volume is made of it."""

    def remove_image(self, name, pool=ceph.IMAGE_POOL):
        with contextlib.suppress(bindings.load().rbd.Error):  # It is gone, or has clones.
            super().remove_image(name, pool)

    def clone(self, step):
        """Clone an image that is deleted at a step of the driver; return what is left of them."""
        image, volume, left = self.add_image(), base.VolumeRef(new_id(), 1), step
        self.addCleanup(self.driver.delete, volume)

        def check():
            nonlocal left
            left -= 1
            if not left:
                self.remove_image(image)

        with base.ownership(check):
            answer = self.driver.clone_image(volume, self.stored(image, self.url(image)))
        with self.driver.open_data(base.VolumeRef(volume.id, 1, answer), "ro") as data:
            self.assertEqual(DATA, data.read(0, 4096))
        self.driver.delete(volume)
        return left

    def test_image_deleted_before_it_is_cloned_is_an_error_and_leaves_nothing(self):
        before = self.backend.orphans()
        with self.assertRaisesRegex(exception.BackendError, "was deleted before") as raised:
            self.clone(1)
        self.assertTrue(raised.exception.final)
        self.assertEqual(before, self.backend.orphans())
        self.assertEqual({}, dict(self.driver.list_volumes()))

    def test_volume_has_the_data_of_an_image_deleted_while_it_is_cloned(self):
        before, step = self.backend.orphans(), 2
        while self.clone(step) <= 0:
            self.assertEqual(before, self.backend.orphans(), step)
            step += 1
        self.assertGreater(step, 3)


@full_only("storage")
class KilledTest(ImagePoolCase):
    """A manager that is killed before each change; another one repeats the call, or undoes it."""

    def test_killed_clone_is_repeated_or_undone_and_leaves_nothing(self):
        image, volume = self.add_image(), base.VolumeRef(new_id(), 1)
        stored, before = self.stored(image, self.url(image)), self.backend.orphans()
        for number in self.each_death("clone_image", volume, stored):
            if number % 2:
                self.driver.delete(volume)  # as before each attempt
                answer = self.driver.clone_image(volume, stored)
                with self.driver.open_data(base.VolumeRef(volume.id, 1, answer), "ro") as data:
                    self.assertEqual(DATA, data.read(0, 4096))
            self.driver.delete(volume)
            self.assertEqual(before, self.backend.orphans(), number)
            self.assertEqual([], self.children(image), number)
        self.driver.delete(volume)


@full_only("storage")
class GlanceTest(multiattach_case.MultiattachCase):
    """A real Glance with its store in Ceph, behind a served API."""

    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared(self)
        self.cluster.require_statistics(self)
        keystone = keystone_fixture.shared(self)
        self.glance = glance_fixture.Glance(self, keystone, self.cluster)
        self.user = keystone.user("alice", "member")
        options = self.cluster.options(ceph.new_prefix())
        images = "\n".join(f"{key} = {value}" for key, value in self.glance.options().items())
        folder = lifetime.temp_dir(self)
        own = folder / "own.conf"
        backend = settings("rbd", {**options, "rbd_image_pools": ceph.IMAGE_POOL})
        own.write_text(f"{backend}\n[glance]\n{images}\n")
        self.server = deployments.AllInOne(self, folder / "state", f"--config-file={own}")
        self.api = http_client.Client(f"{self.server.url}/v3")

    def create(self, image, status="available"):
        body = {"volume": {"size": 1, "imageRef": image}}
        volume = self.api.request_json("POST", "/volumes", body)["volume"]
        self.api.wait_for(volume["id"], status)
        return volume["id"]

    def read(self, volume):
        host = self.useFixture(initiators.RbdHost(self, "a"))
        attachment, info = self.attach(volume, host)
        data = host.read(info, 0, MIB)
        self.detach(attachment)
        return data

    def test_volume_is_cloned_and_image_can_be_deleted(self):
        data = secrets.token_bytes(MIB)
        image = self.glance.add(self.user, data)
        volume = self.create(image)
        self.assertEqual(0, self.glance.count_downloads(image))
        self.assertEqual(data, self.read(volume))
        answer = self.glance.request(self.user, "DELETE", f"/images/{image}")
        self.assertEqual(requests.codes.no_content, answer.status_code, answer.text)
        self.assertNotIn(image, self.cluster.images("", ceph.IMAGE_POOL))
        self.assertEqual(data, self.read(volume))

    def test_raw_image_that_contains_another_format_is_refused(self):
        data = b"QFI\xfb\0\0\0\3" + bytes(MIB)
        image = self.glance.add(self.user, data)
        self.create(image, "error")
