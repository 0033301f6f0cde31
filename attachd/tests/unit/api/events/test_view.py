# SPDX-License-Identifier: Apache-2.0
"""Tests of the representation of events."""

import unittest

from attachd.api.events import view
from attachd.db.attachments import events
from attachd.tests.unit.api.events.test_parameters import ROW


class ViewTest(unittest.TestCase):
    def test_each_event_type_has_known_status(self):
        found = {type_: view.status(type_) for type_ in events.TYPES}
        self.assertEqual("deleted", found["deleted"])
        self.assertEqual("attached", found["detach_refused"])
        self.assertEqual("attaching", found["connected"])
        self.assertEqual("error_detaching", found["disconnect_failed"])
        self.assertEqual("attaching", view.status("move_finished", "connected"))

    def test_event_has_declared_fields(self):
        declared = set(view.Event.__annotations__) - {"proof", "condition", "move_from"}
        internal = {"agent", "process", "error"}
        self.assertEqual(declared, set(view.event(ROW, internals=True)))
        self.assertEqual(declared - internal, set(view.event(ROW, internals=False)))

    def test_event_of_changed_condition_has_it(self):
        condition = {"state": "failed", "former_state": "ok"}
        row = {**ROW, "type": "condition_changed", "details": {"condition": condition}}
        shown = view.event(row, internals=False)
        self.assertEqual(("attached", condition), (shown["status"], shown["condition"]))

    def test_event_of_fenced_attachment_has_proof(self):
        proof = {"result": "proved", "observed_at": [], "observed": []}
        row = {**ROW, "type": "fenced", "details": {"proof": proof}}
        shown = view.event(row, internals=False)
        self.assertEqual(("detaching", proof), (shown["status"], shown["proof"]))
