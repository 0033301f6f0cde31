# SPDX-License-Identifier: Apache-2.0
"""Methods of volumes, on a real database."""

from attachd import context, exception
from attachd.objects import Volume
from attachd.objects.volume import backend_of
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows


class VolumeTest(databases.DatabaseCase):
    """Each method is one call of the database."""

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext(user_id="u", project_id=db_rows.PROJECT)

    def _create(self, **values):
        values = {"project_id": db_rows.PROJECT, "user_id": "u", "size_gib": 2, **values}
        return Volume.create(self.context, values)

    def test_create_stores_state_creating_and_owner(self):
        volume = self._create(host="here@fake#pool", metadata={"k": "v"})
        row = db_rows.get_volume(volume.id)
        self.assertEqual(("creating", "here@fake"), (row["status"], row["owner"]))
        self.assertEqual({"k": "v"}, volume.metadata)

    def test_create_returns_same_values_as_get(self):
        volume = self._create(host="here@fake#pool", name="n", metadata={"k": "v"})
        loaded = Volume.get(self.context, volume.id)
        for name in Volume.fields:
            self.assertEqual(getattr(loaded, name), getattr(volume, name), name)

    def test_get_of_other_project_raises_not_found_except_admin(self):
        volume = self._create()
        other = context.RequestContext(project_id="other")
        with self.assertRaises(exception.VolumeNotFound):
            Volume.get(other, volume.id)
        admin = context.RequestContext(project_id="other", is_admin=True)
        self.assertEqual(volume.id, Volume.get(admin, volume.id).id)

    def test_fire_stores_values_and_loads_state(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        volume.fire(Event.EXTEND, new_size_gib=5)
        row = db_rows.get_volume(volume.id)
        stored = (row["state"], row["new_size_gib"], row["owner"])
        self.assertEqual(("extending", 5, "here@fake"), stored)
        self.assertEqual(("extending", "extending"), (volume.state, volume.status))

    def test_fire_of_changed_row_raises_invalid_transition(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        db_rows.change_volume(volume.id, state="deleting")
        with self.assertRaises(exception.InvalidTransition):
            volume.fire(Event.EXTEND, new_size_gib=5)
        self.assertEqual("ready", volume.state)

    def test_backend_is_host_without_pool(self):
        cases = {"here@fake#pool": "here@fake", "here@fake": "here@fake", "": "", None: ""}
        self.assertEqual(cases, {host: backend_of(host) for host in cases})
        self.assertEqual("here@fake", Volume(host="here@fake#pool").backend)
