# SPDX-License-Identifier: Apache-2.0
"""Columns of tables that fit."""

import unittest

from attachd.cli import formatting, table_layout
from attachd.cli.table_layout import Layout, Table

TABLE = Table(("ID", "Name", "Note", "Size"), [("a" * 10, "data", None, 1), ("b", "c", None, 22)])


class FitTest(unittest.TestCase):
    def fit(self, width, order=(), optional=("Size", "Note", "Name")):
        return table_layout.fit(TABLE, Layout(order, optional), width).names

    def test_columns_go_in_order_and_empty_ones_first(self):
        for width, expected in (
            (0, TABLE.names),
            (TABLE.width(), TABLE.names),
            (TABLE.width() - 1, ("ID", "Name", "Size")),
            (28, ("ID", "Name", "Size")),
            (27, ("ID", "Name")),
            (14, ("ID",)),
            (1, ("ID",)),
        ):
            self.assertEqual(expected, self.fit(width), width)

    def test_order_of_layout_selects_columns(self):
        self.assertEqual(("Name", "ID"), self.fit(0, ("Name", "Missing", "ID")))
        rows = table_layout.fit(TABLE, Layout(("Name", "ID")), 0).rows
        self.assertEqual(("data", "a" * 10), rows[0])

    def test_width_is_that_of_the_longest_cell_as_people_see_it(self):
        table = Table(("N",), [(formatting.Count([1] * 12),), ("one\nlonger",)])
        self.assertEqual(len("| longer |"), table.width())

    def test_missing_values_are_empty_cells(self):
        self.assertEqual(("a" * 10, "data", "", 1), table_layout.fill(TABLE).rows[0])

    def test_wrong_values_are_red(self):
        table = Table(("Status", "ID"), [("error_attaching", "error"), ("attached", "x")])
        (first, second) = table_layout.redden(table).rows
        self.assertEqual(("\x1b[31merror_attaching\x1b[39m", "error"), first)
        self.assertEqual(("attached", "x"), second)

    def test_lines_are_wrapped_between_words(self):
        lines = table_layout.wrap(["It is /dev/disk/by-id/x now", ""], 12)
        self.assertEqual(["It is", "    /dev/disk/by-id/x", "    now", ""], lines)
        self.assertEqual(["a b"], table_layout.wrap(["a b"], 0))
