# SPDX-License-Identifier: Apache-2.0
"""The condition of an attachment is stored once, and only if the attachment is the same."""

from attachd.db.attachments import attachment_conditions, backend_attachments, events
from attachd.tests.fixtures import backends, db_rows


class RecordTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]
        self.attachment = db_rows.add_attachment(self.volume, "attached", agent="h1")["id"]

    def read(self):
        return self.read_of(self.attachment)

    def condition(self, state):
        return {**attachment_conditions.NOT_OBSERVED, "state": state, "changed_at": "now"}

    def stored(self):
        row = db_rows.get_attachment(self.attachment)
        return row["condition_state"], row["observed"]

    def events(self):
        return [
            event["details"]["condition"]
            for event in events.list_of_attachment(self.attachment, None)
            if event["type"] == events.CONDITION_CHANGED
        ]

    def test_condition_of_another_state_is_stored_with_an_event(self):
        self.assertFalse(attachment_conditions.record(self.read(), self.condition("ok")))
        self.assertTrue(attachment_conditions.record(self.read(), self.condition("failed")))
        self.assertEqual(("failed", self.condition("failed")), self.stored())
        (said,) = self.events()
        self.assertEqual(("failed", "ok"), (said["state"], said["former_state"]))

    def test_same_observation_of_several_processes_is_stored_once(self):
        for state in ("failed", "ok"):
            rows = [self.read() for _process in range(3)]
            stored = [attachment_conditions.record(row, self.condition(state)) for row in rows]
            self.assertEqual([True, False, False], stored)
        self.assertEqual(["failed", "ok"], [said["state"] for said in self.events()])

    def test_condition_of_changed_attachment_is_not_stored(self):
        before = self.read()
        for change in ({"generation": before["generation"] + 1}, {"state": "withdrawing"}):
            db_rows.change_attachment(self.attachment, **change)
            self.assertFalse(attachment_conditions.record(before, self.condition("failed")))
            self.assertEqual((None, None), self.stored())

    def test_list_of_attachments_has_those_that_were_observed(self):
        other = db_rows.add_attachment(self.volume, "attached")["id"]
        condition = self.condition("ok")
        attachment_conditions.record(self.read_of(self.attachment), condition)
        found = attachment_conditions.list_of_attachments([self.attachment, other, "none"])
        self.assertEqual({self.attachment: condition, other: None}, found)

    def read_of(self, attachment_id):
        backend = db_rows.get_volume(self.volume)["backend_host"]
        rows = backend_attachments.list_of_agents(backend, ["h1"])
        return next(row for row in rows if row["id"] == attachment_id)
