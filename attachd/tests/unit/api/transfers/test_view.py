# SPDX-License-Identifier: Apache-2.0
"""Tests of transfers as answers show them."""

import unittest

from attachd.api import microversions as mv
from attachd.api.transfers import view
from attachd.tests.fixtures import api_context

ROW = {
    "id": "t",
    "volume_id": "v",
    "project_id": "p",
    "name": None,
    "salt": "secret salt",
    "key_digest": "secret digest",
    "no_snapshots": True,
    "created_at": 7,
    "updated_at": None,
}
SUMMARY = {"id", "volume_id", "name", "links"}
HISTORY = {"source_project_id", "destination_project_id", "accepted"}


class ViewTest(unittest.TestCase):
    def setUp(self):
        self.links = api_context.make_links()

    def test_fields_come_with_their_versions(self):
        for minor, added in (
            (0, set()),
            (54, set()),
            (55, {"no_snapshots"}),
            (57, {"no_snapshots", *HISTORY}),
        ):
            shown = view.detail(ROW, self.links, mv.Version(3, minor))
            self.assertEqual(SUMMARY | {"created_at"} | added, set(shown), minor)

    def test_nothing_shows_how_the_key_is_stored(self):
        shown = view.detail(ROW, self.links, mv.LATEST)
        self.assertNotIn("secret", f"{shown}")
        self.assertEqual(
            ("p", None, False),
            tuple(
                shown[key] for key in ("source_project_id", "destination_project_id", "accepted")
            ),
        )

    def test_summary_has_link_of_the_same_collection_in_all_versions(self):
        shown = view.summary(ROW, self.links)
        self.assertEqual(SUMMARY, set(shown))
        self.assertTrue(shown["links"][0]["href"].endswith("/os-volume-transfer/t"))
