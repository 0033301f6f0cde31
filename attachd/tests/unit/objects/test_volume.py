# SPDX-License-Identifier: Apache-2.0
"""A volume's verbs, on a real database."""

import unittest

from attachd import context, exception
from attachd.objects import Volume
from attachd.objects.volume import backend_of
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows


class VolumeTest(unittest.TestCase):
    """Each verb is one call of the database."""

    def setUp(self):
        super().setUp()
        databases.use(self)
        self.context = context.RequestContext(user_id="u", project_id=db_rows.PROJECT)

    def _create(self, **values):
        wanted = {"project_id": db_rows.PROJECT, "user_id": "u", "size_gib": 2, **values}
        return Volume.create(self.context, wanted)

    def test_a_new_volume_waits_for_its_backend(self):
        volume = self._create(host="here@fake#pool", metadata={"k": "v"})
        row = db_rows.get_volume(volume.id)
        self.assertEqual(("creating", "here@fake"), (row["status"], row["owner"]))
        self.assertEqual({"k": "v"}, volume.metadata)

    def test_a_new_volume_is_at_once_what_a_later_load_gives(self):
        volume = self._create(host="here@fake#pool", name="n", metadata={"k": "v"})
        loaded = Volume.get(self.context, volume.id)
        for name in Volume.fields:
            self.assertEqual(getattr(loaded, name), getattr(volume, name), name)

    def test_another_projects_volume_is_not_found(self):
        volume = self._create()
        stranger = context.RequestContext(project_id="other")
        with self.assertRaises(exception.VolumeNotFound):
            Volume.get(stranger, volume.id)
        admin = context.RequestContext(project_id="other", is_admin=True)
        self.assertEqual(volume.id, Volume.get(admin, volume.id).id)

    def test_an_event_is_stored_with_its_values_and_shown(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        volume.fire(Event.EXTEND, new_size_gib=5)
        row = db_rows.get_volume(volume.id)
        stored = (row["state"], row["new_size_gib"], row["owner"])
        self.assertEqual(("extending", 5, "here@fake"), stored)
        self.assertEqual(("extending", "extending"), (volume.state, volume.status))

    def test_an_event_goes_by_the_row_and_not_by_what_was_loaded(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        db_rows.change_volume(volume.id, state="deleting")
        with self.assertRaises(exception.InvalidTransition):
            volume.fire(Event.EXTEND, new_size_gib=5)
        self.assertEqual("ready", volume.state)

    def test_the_backend_is_the_host_without_the_pool(self):
        cases = {"here@fake#pool": "here@fake", "here@fake": "here@fake", "": "", None: ""}
        self.assertEqual(cases, {host: backend_of(host) for host in cases})
        self.assertEqual("here@fake", Volume(host="here@fake#pool").backend)
