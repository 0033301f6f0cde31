# SPDX-License-Identifier: Apache-2.0
"""What a copy has of its source."""

import unittest

from attachd import exception
from attachd.api.volumes import sources
from attachd.tests import asking, rows


class SourcesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report("here@shelf")
        asking.report("there@shelf")
        self.ctx = asking.context()
        self.type_id = asking.add_type("gold", is_public=False)["id"]

    def source(self, state="ready", ctx=None, **values):
        row = rows.add_volume(
            state,
            **{
                "host": "here@shelf#p",
                "size_gib": 3,
                "availability_zone": "nova",
                "volume_type_id": self.type_id,
                **values,
            },
        )
        return sources.source_of(ctx or self.ctx, {"source_volid": row["id"]})

    def test_no_source_is_none(self):
        for wanted in ({}, {"source_volid": None}, {"source_volid": ""}):
            self.assertIsNone(sources.source_of(self.ctx, wanted))

    def test_only_what_is_available_or_in_use_is_a_source(self):
        volume = rows.add_volume()["id"]
        rows.add_attachment(volume, "attached")
        self.assertEqual(volume, sources.source_of(self.ctx, {"source_volid": volume}).id)
        self.assertEqual("available", self.source().status)
        for state in ("creating", "error", "deleting", "extending", "maintenance"):
            with self.assertRaisesRegex(exception.InvalidVolume, f"currently {state}"):
                self.source(state)

    def test_another_projects_volume_is_not_there(self):
        with self.assertRaises(exception.VolumeNotFound):
            self.source(project_id=asking.OTHER_PROJECT)
        admin = asking.context(*asking.ADMIN)
        self.assertIsNotNone(self.source(ctx=admin, project_id=asking.OTHER_PROJECT))

    def test_the_type_is_the_sources_unless_another_one_is_asked_for(self):
        asking.add_type("silver")
        source = self.source()
        self.assertEqual("gold", sources.kind(self.ctx, {}, source)["name"])
        wanted = {"volume_type": "silver"}
        self.assertEqual("silver", sources.kind(self.ctx, wanted, source)["name"])
        self.assertIsNone(sources.kind(self.ctx, {}, self.source(volume_type_id=None)))
        self.assertIsNone(sources.kind(self.ctx, {}, None))

    def test_the_size_is_the_sources_or_more(self):
        source = self.source()
        self.assertEqual(3, sources.size({}, source))
        self.assertEqual(4, sources.size({"size": "4"}, source))
        with self.assertRaisesRegex(exception.InvalidInput, "at least its 3 GiB"):
            sources.size({"size": 2}, source)

    def test_the_place_is_the_sources(self):
        for host in ("here@shelf", "there@shelf"):
            source = self.source(host=f"{host}#p")
            for zone in (None, "nova"):
                found = sources.place(source, 1, {}, zone)
                self.assertEqual(f"{host}#shelf", found.host)

    def test_another_zone_or_what_its_backend_lacks_is_refused(self):
        source = self.source()
        with self.assertRaisesRegex(exception.InvalidInput, "in nova"):
            sources.place(source, 1, {}, "far")
        with self.assertRaisesRegex(exception.NoBackendFits, "colour"):
            sources.place(source, 1, {"colour": "red"})
        with self.assertRaisesRegex(exception.NoBackendFits, "200 GiB are asked for"):
            sources.place(source, 200, {})

    def test_a_source_whose_backend_is_down_is_not_copied(self):
        asking.report("here@shelf", up=False)
        with self.assertRaisesRegex(exception.NoBackendFits, "down"):
            sources.place(self.source(), 1, {})
