# SPDX-License-Identifier: Apache-2.0
"""Budgets of an attach cycle, by counts, which no other load of the machine changes."""

import json
from pathlib import Path
import re
import sys
import tempfile
import unittest

import attachd
from attachd.tests.fixtures import processes
from attachd.tests.wait import TIMEOUT

TOP = Path(attachd.__file__).parents[1]
BENCHMARK = TOP / "benchmarks" / "attach_cycle.py"
PAGE = TOP / "doc" / "source" / "admin" / "performance.rst"
ENOUGH_CYCLES = 100
"""Cycles among which what the process does every few seconds is less than the tolerance."""
PERIODIC_STATEMENTS = 12
"""How many statements a second the periodic work of a process has at most: 6 if it is idle, more
while other work of the machine delays its calls, which are checked then."""

BUDGETS = {
    "sql statements": 25,
    "writing transactions": 6,
    "rpc calls": 2,
    "function calls of the API": 5200,
    "function calls of the manager": 3400,
}


class BudgetsTest(unittest.TestCase):
    """An attach cycle of attachd-all-in-one, and the page that has its counts."""

    def setUp(self):
        super().setUp()
        if not BENCHMARK.is_file():
            self.skipTest("installed without the benchmarks")

    def test_attach_cycle_is_within_budgets(self):
        found = self._measure()
        counted = found["per_cycle"]
        periodic = PERIODIC_STATEMENTS / found["cycles_per_second"]
        self.assertAlmostEqual(BUDGETS["rpc calls"], counted["rpc calls"], delta=0.01)
        for name, most in BUDGETS.items():
            with self.subTest(name):
                self.assertGreater(counted[name], 0.9 * most, "lower the budget")
                # Half a statement of periodic work, or more on a slow machine, and calls in the
                # same proportion.
                self.assertLess(counted[name], most + max(0.5, most / 50, periodic))

    def test_page_of_documentation_has_the_budgets(self):
        text = PAGE.read_text(encoding="utf-8")
        rows = dict(re.findall(r"^   \* - (.+)\n     - ([\d,]+)$", text, re.MULTILINE))
        for name, most in BUDGETS.items():
            shown = rows.get(name, rows.get(f"{name}, without BEGIN and COMMIT"))
            self.assertEqual(f"{most:,}", shown, name)
        self.assertEqual({"25"}, set(re.findall(r"(\d+)\s+SQL\s+statements", text)))

    def _measure(self):
        with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
            result = Path(folder) / "result.json"
            for seconds in (3, 9, 27):
                done = processes.run(
                    [
                        *(sys.executable, "-W", "ignore", str(BENCHMARK), "--start", "all-in-one"),
                        *("--functions", "--clients", "1", "--seconds", f"{seconds}"),
                        *("--warmup", "0.5", "--json", str(result)),
                    ],
                    timeout=2 * TIMEOUT,
                )
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                (found,) = json.loads(result.read_text(encoding="utf-8"))["results"]
                if found["cycles"] >= ENOUGH_CYCLES:
                    break
        return found
