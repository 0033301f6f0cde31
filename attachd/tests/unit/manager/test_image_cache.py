# SPDX-License-Identifier: Apache-2.0
"""The image cache: who fills an entry, who waits, and what happens where it cannot be used."""

import threading
import time
from unittest import mock

from attachd.db.types import type_store
from attachd.db.volumes import image_cache_entries, volume_store
from attachd.images.glance import Image
from attachd.manager import image_cache
from attachd.manager.backends import ImageCacheLimits
from attachd.states import Event
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_glance
from attachd.tests.wait import TIMEOUT, wait_until

GIB = 2**30


class CacheCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.use(self)
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        self.limit()
        self.image = self.glance.add(b"data")

    def limit(self, count=0, gib=0, timeout=30):
        self.backend.image_cache = ImageCacheLimits(count, gib, timeout)

    def create(self, image=None, **values):
        volume = self.add(image, **values)
        self.run_creation(volume)
        return db_rows.get_volume(volume)

    def run_creation(self, volume):
        """Run it as the background tasks do."""
        creation = image_cache.Creation(self.backend, volume)
        while (later := creation.run()) is not None:
            time.sleep(later.seconds)  # The tasks wait as long.

    def add(self, image=None, **values):
        row = {"owner": backends.HOST, "image_id": image or self.image, **values}
        return db_rows.add_volume("creating", **row)["id"]

    def listed(self):
        return image_cache_entries.list_of_backend(backends.HOST, self.backend.membership.id)

    def made_of_cache(self):
        return self.driver.methods.count("clone")


class CloneTest(CacheCase):
    def test_image_is_read_once_for_many_volumes(self):
        rows = [self.create() for _ in range(3)]
        self.assertEqual(["ready"] * 3, [row["state"] for row in rows])
        self.assertEqual([None] * 3, [row["source_volid"] for row in rows])
        self.assertEqual(1, self.glance.count_downloads(self.image))
        self.assertEqual(3, self.made_of_cache())
        ((entry),) = self.listed()
        self.assertEqual(("ready", self.image), (entry["state"], entry["image_id"]))

    def test_clone_has_the_size_of_its_volume_and_the_entry_that_of_the_image(self):
        volume = self.create(size_gib=5)
        (entry,) = self.listed()
        self.assertEqual({volume["id"]: 5, entry["id"]: 1}, self.driver.sizes())

    def test_backend_without_cache_reads_the_image_each_time(self):
        self.backend.image_cache = None
        for _ in range(2):
            self.create()
        self.assertEqual(2, self.glance.count_downloads(self.image))
        self.assertEqual([], self.listed())

    def test_volumes_of_another_type_or_pool_have_another_entry(self):
        type_id = type_store.create({"name": "gold"})["id"]
        for values in ({}, {"volume_type_id": type_id}, {"host": "here@fake#other"}):
            self.create(**values)
        self.assertEqual(3, len(self.listed()))

    def test_failed_clone_is_made_as_without_the_cache(self):
        with self.driver.failing("clone"):
            row = self.create()
        self.assertEqual(("ready", None), (row["state"], row["source_volid"]))
        self.assertEqual(2, self.glance.count_downloads(self.image))

    def test_entry_is_filled_without_the_cache_when_it_is_recovered(self):
        entry = self.add(project_id=image_cache_entries.PROJECT)
        self.run_creation(entry)
        self.assertEqual("ready", db_rows.get_volume(entry)["state"])
        self.assertEqual(1, len(self.listed()))


class FailureTest(CacheCase):
    def test_image_that_is_gone_leaves_error_although_it_is_in_the_cache(self):
        self.create()
        del self.glance.images[self.image]
        row = self.create()
        self.assertEqual("error", row["state"])
        self.assertIn("could not be found", row["error"])

    def test_image_that_is_not_active_leaves_error_although_it_is_in_the_cache(self):
        self.create()
        self.glance.images[self.image]["status"] = "deactivated"
        self.assertEqual("error", self.create()["state"])

    def test_failed_entry_is_removed_and_volume_made_without_it(self):
        with mock.patch.object(image_cache.volumes, "_create_flow", side_effect=_broken):
            row = self.create()
        self.assertEqual("ready", row["state"])
        self.assertEqual([], self.listed())
        self.assertEqual([row["id"]], list(self.driver.sizes()))

    def test_wrong_checksum_leaves_error_and_no_entry(self):
        row = self.create(self.glance.add(b"data", os_hash_value="0"))
        self.assertEqual(("error", None), (row["state"], row["source_volid"]))
        self.assertIn("checksum", row["error"])
        self.assertEqual(([], {}), (self.listed(), self.driver.sizes()))

    def test_unavailable_database_of_cache_leaves_ordinary_import(self):
        error = image_cache.exception.Unavailable(reason="x")
        with mock.patch.object(image_cache_entries, "add", side_effect=error):
            self.assertEqual("ready", self.create()["state"])
        self.assertEqual(0, self.made_of_cache())

    def test_unforeseen_error_of_cache_leaves_ordinary_import(self):
        with mock.patch.object(image_cache_entries, "add", side_effect=IndexError):
            self.assertEqual("ready", self.create()["state"])
        self.assertEqual(0, self.made_of_cache())


def _broken(*_):
    raise image_cache.exception.BackendError("The entry fails.")


class VersionTest(CacheCase):
    def test_changed_image_is_read_again_and_its_former_entry_removed(self):
        self.create()
        (former,) = self.listed()
        self.glance.images[self.image]["updated_at"] = "2026-02-02T00:00:00Z"
        self.create()
        self.assertEqual(2, self.glance.count_downloads(self.image))
        self.assertNotEqual(former["id"], self.listed()[0]["id"])
        self.assertEqual(1, len(self.listed()))

    def test_former_entry_stays_while_it_is_cloned(self):
        self.create()
        (former,) = self.listed()
        pending = self.add(source_volid=former["id"])
        self.glance.images[self.image]["updated_at"] = "2026-02-02T00:00:00Z"
        self.create()
        self.assertEqual(2, len(self.listed()))
        volume_store.transition(pending, Event.CREATE_FAILED)
        self.create()
        self.assertEqual(1, len(self.listed()))

    def test_size_is_that_of_the_disk_or_unknown(self):
        cases = [
            (1, {"size": 1}),
            (2, {"size": GIB + 1}),
            (4, {"size": GIB, "min_disk": 4}),
            (3, {"disk_format": "qcow2", "size": 100, "virtual_size": 3 * GIB}),
            (None, {"disk_format": "qcow2", "size": 100}),
        ]
        for expected, fields in cases:
            body = {"id": "x", "status": "active", "disk_format": "raw", **fields}
            self.assertEqual(expected, image_cache.find_size(Image.parse(body)), fields)


class LimitTest(CacheCase):
    def images(self):
        return [row["image_id"] for row in self.listed()]

    def test_least_recently_used_image_is_removed_for_another(self):
        self.limit(count=2)
        first, second, third = (self.glance.add(b"data") for _ in range(3))
        for image in (first, second, first, third):
            self.create(image)
        self.assertEqual([first, third], self.images())
        self.assertEqual(4 + 2, len(self.driver.sizes()))

    def test_image_that_is_being_cloned_stays(self):
        self.limit(count=1)
        self.create()
        (entry,) = self.listed()
        self.add(source_volid=entry["id"])
        self.assertEqual("ready", self.create(self.glance.add(b"data"))["state"])
        self.assertEqual([self.image], self.images())

    def test_images_beyond_the_size_are_not_kept(self):
        self.limit(gib=3)
        self.create(self.glance.add(b"data", min_disk=4), size_gib=4)
        self.assertEqual([], self.images())
        images = [self.glance.add(b"data", min_disk=2) for _ in range(2)]
        for image in images:
            self.create(image, size_gib=2)
        self.assertEqual([images[1]], self.images())

    def test_entry_that_cannot_be_removed_does_not_hinder_a_volume(self):
        self.limit(count=1)
        self.create()
        with self.driver.failing("delete"):
            self.create(self.glance.add(b"data"))
        self.assertEqual("error_deleting", db_rows.get_volume(self.listed()[0]["id"])["state"])
        self.create(other := self.glance.add(b"data"))
        self.assertEqual([other], self.images())


class WaitTest(CacheCase):
    def add_entry(self, holder):
        """Add an entry that another process fills."""
        image = Image.parse(self.glance.images[self.image])
        row = volume_store.get_for_driver(self.add())
        entry = image_cache.describe(row, image)
        values = {"size_gib": 1, "host": row["host"], "description": entry.version}
        key = {"id": entry.id, "image_id": entry.image_id, "lease_holder": holder}
        image_cache_entries.add({**values, **key}, 0, 0)
        return entry.id

    def test_volume_waits_until_the_entry_is_filled(self):
        entry = self.add_entry(self.backend.membership.id)
        thread = threading.Timer(0.3, volume_store.transition, (entry, Event.CREATED))
        thread.start()
        self.assertEqual("ready", self.create()["state"])
        thread.join(TIMEOUT)
        self.assertEqual(0, self.glance.count_downloads(self.image))
        self.assertEqual(1, self.made_of_cache())

    def test_volumes_that_wait_leave_their_places_to_other_copies(self):
        entry = self.add_entry(self.backend.membership.id)
        waiting = [self.add() for _ in range(conf_fixture.CONF.manager.copies_per_backend + 1)]
        for volume in waiting:
            image_cache.copy(self.backend, volume)
        other = self.add(self.glance.add(b"other"))
        image_cache.copy(self.backend, other)
        wait_until(lambda: db_rows.get_volume(other)["state"] == "ready")
        rows = [db_rows.get_volume(volume) for volume in waiting]
        self.assertEqual({("creating", None)}, {(it["state"], it["lease_holder"]) for it in rows})
        volume_store.transition(entry, Event.CREATED)
        wait_until(lambda: not self.backend.background_tasks.is_busy)
        states = {db_rows.get_volume(volume)["state"] for volume in waiting}
        self.assertEqual({"ready"}, states)
        self.assertEqual(0, self.glance.count_downloads(self.image))

    def test_volume_does_not_wait_for_a_process_that_died(self):
        self.add_entry("11111111-2222-4333-8444-555555555555")
        self.assertEqual("ready", self.create()["state"])
        self.assertEqual(1, self.glance.count_downloads(self.image))
        self.assertEqual(0, self.made_of_cache())

    def test_volume_does_not_wait_longer_than_it_may(self):
        self.limit(timeout=0.2)  # the subject
        self.add_entry(self.backend.membership.id)
        self.assertEqual("ready", self.create()["state"])
        self.assertEqual(1, self.glance.count_downloads(self.image))
