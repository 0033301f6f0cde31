# SPDX-License-Identifier: Apache-2.0
"""The diagrams of the state table."""

import contextlib
import io
import unittest

from attachd import states
from attachd.tests.fixtures import requirements


class StateDiagramTest(unittest.TestCase):
    def setUp(self):
        self.state_diagram = requirements.import_tool(self, "state_diagram")
        self.graph = self.state_diagram.dot(
            "attachment",
            states.ATTACHMENT_TRANSITIONS,
            states.AttachmentState.RESERVED,
            states.AttachmentState.HELD,
        )

    def test_diagram_has_each_transition_once(self):
        for event, move in states.ATTACHMENT_TRANSITIONS.items():
            for source in move.sources:
                arrow = f'"{source}" -> "{move.target or "gone"}" ['
                (line,) = (line for line in self.graph.splitlines() if arrow in line)
                self.assertIn(event.name, line)

    def test_diagram_has_no_other_transition(self):
        pairs = {
            (source, move.target)
            for move in states.ATTACHMENT_TRANSITIONS.values()
            for source in move.sources
        }
        self.assertEqual(len(pairs), self.graph.count("[label="))

    def test_diagram_starts_at_reserved_and_held(self):
        self.assertIn('start -> "reserved"; start -> "held";', self.graph)

    def test_page_lists_wire_name_of_each_state(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.state_diagram.main()
        page = printed.getvalue()
        for state in states.AttachmentState:
            self.assertIn(f"   * - ``{state}``\n     - ``{state.wire}``\n", page)
        self.assertEqual(3, page.count(".. graphviz::"))
        self.assertIn('"creating" -> "ready"', page)
