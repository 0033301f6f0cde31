# SPDX-License-Identifier: Apache-2.0
"""The attachments of a page of volumes, as drivers get them."""

from attachd import states
from attachd.db.attachments import backend_attachments
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, db_rows


class BackendAttachmentsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        for state in AttachmentState:
            db_rows.add_attachment(self.volume, state)
        other = db_rows.add_volume()["id"]
        db_rows.add_attachment(other, "attached")

    def test_list_live_returns_attachments_with_access(self):
        found = backend_attachments.list_live([self.volume])
        expected = {
            row["id"]
            for row in map(db_rows.get_attachment, (item["id"] for item in found))
            if row["state"] in set(states.LIVE)
        }
        self.assertEqual(expected, {row["id"] for row in found})
        self.assertEqual(len(states.LIVE), len(found))

    def test_list_without_agent_returns_observed_ones_alone_if_asked(self):
        db_rows.add_attachment(self.volume, "attached", agent="h1")
        self.assertEqual(1, len(backend_attachments.list_without_agent([self.volume])))
        found = backend_attachments.list_without_agent([self.volume], observed_only=True)
        self.assertEqual([], found)
        observed = db_rows.add_attachment(self.volume, "attached", condition_state="ok")["id"]
        found = backend_attachments.list_without_agent([self.volume], observed_only=True)
        self.assertEqual([observed], [row["id"] for row in found])

    def test_list_of_agents_returns_attached_ones_of_backend(self):
        made = db_rows.add_attachment(self.volume, "attached", agent="h1")["id"]
        db_rows.add_attachment(self.volume, "connecting", agent="h2")
        other = db_rows.add_volume(host="there@fake#pool", backend_host="there@fake")["id"]
        db_rows.add_attachment(other, "attached", agent="h1")
        db_rows.add_attachment(other, "attached", agent="h3")
        backend = db_rows.get_volume(self.volume)["backend_host"]
        self.assertEqual({"h1": 1}, backend_attachments.count_by_agent(backend))
        found = backend_attachments.list_of_agents(backend, ["h1", "h3"])
        self.assertEqual([made], [row["id"] for row in found])

    def test_count_by_agent_counts_by_host_and_sorts_by_name(self):
        for agent in ("h2", "h1", "h2"):
            db_rows.add_attachment(self.volume, "attached", agent=agent)
        backend = db_rows.get_volume(self.volume)["backend_host"]
        counts = backend_attachments.count_by_agent(backend)
        self.assertEqual([("h1", 1), ("h2", 2)], [*counts.items()])

    def test_volume_of_row_is_what_drivers_get(self):
        (row,) = backend_attachments.list_without_agent([self.volume])
        volume, known = backend_attachments.volume_of(row), db_rows.get_volume(self.volume)
        for name in ("id", "size_gib", "name", "project_id", "host", "provider", "multiattach"):
            self.assertEqual(known[name], volume[name], name)
