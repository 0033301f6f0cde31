# SPDX-License-Identifier: Apache-2.0
"""Entries of image caches: one is inserted, within the limits, and kept while it is cloned."""

from attachd import exception
from attachd.db import models, quotas
from attachd.db.volumes import image_cache_entries, volume_store
from attachd.db.volumes.image_cache_entries import Entry, Outcome
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

HOST = "here@fake"
IMAGE = "11111111-2222-4333-8444-555555555555"


class EntriesCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.process = models.new_id()

    def new_entry(self):
        return Entry(models.new_id(), IMAGE, "today")

    def add(self, entry, max_entries=0, max_gib=0, **values):
        row = {
            "id": entry.id,
            "image_id": entry.image_id,
            "description": entry.version,
            "size_gib": 2,
            "host": f"{HOST}#pool",
            "lease_holder": self.process,
            **values,
        }
        return image_cache_entries.add(row, max_entries, max_gib)

    def ready(self, **values):
        entry = self.new_entry()
        self.add(entry, **values)
        volume_store.transition(entry.id, Event.CREATED)
        return entry

    def ids(self):
        return [row["id"] for row in image_cache_entries.list_of_backend(HOST, self.process)]


class AddTest(EntriesCase):
    def test_entry_is_volume_that_its_backend_has_to_create(self):
        entry = self.new_entry()
        self.assertIs(Outcome.ADDED, self.add(entry))
        row = db_rows.get_volume(entry.id)
        self.assertEqual(
            (image_cache_entries.PROJECT, "creating", HOST, self.process),
            tuple(row[name] for name in ("project_id", "state", "owner", "lease_holder")),
        )

    def test_entry_that_exists_is_not_added_again(self):
        entry = self.new_entry()
        self.add(entry)
        self.assertIs(Outcome.EXISTS, self.add(entry, max_entries=1))
        self.assertEqual([entry.id], self.ids())

    def test_limits_count_what_is_not_being_removed_from_the_backend(self):
        self.ready(host="here@other#pool")
        first = self.ready()
        for limits in ({"max_entries": 1}, {"max_gib": 3}):
            self.assertIs(Outcome.FULL, self.add(self.new_entry(), **limits))
        volume_store.transition(first.id, Event.DELETE)
        self.assertIs(Outcome.ADDED, self.add(self.new_entry(), max_entries=1, max_gib=2))

    def test_entries_use_no_quota_of_users(self):
        self.ready()
        self.assertEqual(0, quotas.usage(db_rows.PROJECT)[quotas.VOLUMES].total)


class UseTest(EntriesCase):
    def new_volume(self, state="creating"):
        return db_rows.add_volume(state, image_id=IMAGE)["id"]

    def test_used_entry_is_kept_until_the_volume_is_created(self):
        entry, volume = self.ready(), self.new_volume()
        self.assertTrue(image_cache_entries.use(entry, volume))
        with self.assertRaises(exception.InvalidVolume):
            volume_store.transition(entry.id, Event.DELETE)
        volume_store.transition(volume, Event.CREATED, {"source_volid": None})
        volume_store.transition(entry.id, Event.DELETE)

    def test_used_entry_is_the_last_one_to_be_removed(self):
        first, second = self.ready(), self.ready()
        self.assertEqual([first.id, second.id], self.ids())
        image_cache_entries.use(first, self.new_volume())
        self.assertEqual([second.id, first.id], self.ids())

    def test_entry_in_other_state_or_with_other_data_is_not_used(self):
        volume, ready, creating = self.new_volume(), self.ready(), self.new_entry()
        self.add(creating)
        reserved = self.ready()
        db_rows.add_attachment(reserved.id)
        for entry in (
            creating,
            reserved,
            self.new_entry(),
            ready._replace(version="yesterday"),
            ready._replace(image_id=models.new_id()),
            Entry(db_rows.add_volume(description="today", image_id=IMAGE)["id"], IMAGE, "today"),
        ):
            self.assertFalse(image_cache_entries.use(entry, volume), entry)
        self.assertFalse(image_cache_entries.use(ready, self.new_volume("error")))
        self.assertIsNone(db_rows.get_volume(volume)["source_volid"])


class FindTest(EntriesCase):
    def abandoned(self, entry, holder=None):
        return image_cache_entries.find(entry.id, holder or self.process)["abandoned"]

    def test_entry_without_living_process_is_abandoned(self):
        entry, other = self.new_entry(), models.new_id()
        self.add(entry)
        self.assertFalse(self.abandoned(entry))
        self.assertTrue(self.abandoned(entry, other))
        db_rows.change_volume(entry.id, lease_holder=None)
        self.assertTrue(self.abandoned(entry))

    def test_ready_entry_is_not_abandoned(self):
        entry = self.ready()
        db_rows.change_volume(entry.id, lease_holder=None)
        self.assertFalse(self.abandoned(entry))

    def test_volumes_of_users_are_no_entries(self):
        self.assertIsNone(image_cache_entries.find(db_rows.add_volume()["id"], self.process))
        self.assertEqual([], self.ids())
