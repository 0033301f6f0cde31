# SPDX-License-Identifier: Apache-2.0
"""What hangs is not waited for, and not begun again."""

import threading
import unittest

from attachd.agent.patience import Patience, StillBusy
from attachd.tests.wait import TIMEOUT


class PatienceTest(unittest.TestCase):
    def test_what_ends_is_returned_or_raised(self):
        patience = Patience(TIMEOUT)
        self.assertEqual(1, patience.run(lambda: 1))
        with self.assertRaises(ZeroDivisionError):
            patience.run(lambda: 1 / 0)
        self.assertEqual(2, patience.run(lambda: 2))

    def test_what_hangs_goes_on_and_its_end_is_returned_later(self):
        patience, gate, begun = Patience(0.01), threading.Event(), []
        self.addCleanup(gate.set)

        def hang():
            begun.append(1)
            gate.wait(TIMEOUT)
            return "late"

        for _ in range(3):
            self.assertRaises(StillBusy, patience.run, hang)
        gate.set()
        patience._seconds = TIMEOUT
        self.assertEqual("late", patience.run(hang))
        self.assertEqual([1], begun)
        self.assertEqual("new", patience.run(lambda: "new"))
