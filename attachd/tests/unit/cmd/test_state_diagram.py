# SPDX-License-Identifier: Apache-2.0
"""The diagrams show what the table says."""

import contextlib
import io
import unittest

from attachd import states
from attachd.cmd import state_diagram


class StateDiagramTest(unittest.TestCase):
    def setUp(self):
        self.graph = state_diagram.dot(
            "attachment",
            states.ATTACHMENT_TRANSITIONS,
            states.AttachmentState.RESERVED,
            states.AttachmentState.HELD,
        )

    def test_every_arrow_of_the_table_is_drawn_once(self):
        for event, move in states.ATTACHMENT_TRANSITIONS.items():
            for source in move.sources:
                arrow = f'"{source}" -> "{move.target or "gone"}" ['
                (line,) = (line for line in self.graph.splitlines() if arrow in line)
                self.assertIn(event.name, line)

    def test_nothing_else_is_drawn(self):
        pairs = {
            (source, move.target)
            for move in states.ATTACHMENT_TRANSITIONS.values()
            for source in move.sources
        }
        self.assertEqual(len(pairs), self.graph.count("[label="))

    def test_a_new_row_is_reserved_or_held(self):
        self.assertIn('start -> "reserved"; start -> "held";', self.graph)

    def test_the_page_names_every_state_as_the_wire_does(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            state_diagram.main()
        page = printed.getvalue()
        for state in states.AttachmentState:
            self.assertIn(f"   * - ``{state}``\n     - ``{state.wire}``\n", page)
        self.assertEqual(2, page.count(".. graphviz::"))
        self.assertIn('"creating" -> "ready"', page)
