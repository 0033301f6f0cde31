# SPDX-License-Identifier: Apache-2.0
"""Test of the benchmark of a noisy neighbour, with small loads."""

import json
from pathlib import Path
import sys
import unittest

import attachd
from attachd.tests.fixtures import databases, processes, rabbitmq
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

BENCHMARK = Path(attachd.__file__).parents[1] / "benchmarks" / "noisy_neighbour.py"


@full_only("clients")
class NoisyNeighbourTest(unittest.TestCase):
    def test_noisy_neighbour_prints_ratios_for_both_loads(self):
        if not BENCHMARK.is_file():
            self.skipTest("installed without the benchmarks")
        output = temp_dir(self) / "result.json"
        done = processes.run(
            [
                *(sys.executable, "-W", "ignore", str(BENCHMARK)),
                *("--db", databases.create(self, "mariadb"), "--json", str(output)),
                *("--rabbit", rabbitmq.create_vhost(self), "--delay", "0.1"),
                *("--clients", "2", "--asynchronous", "3", "--seconds", "2"),
                *("--api-processes", "1", "--rounds", "1"),
            ],
            timeout=2 * TIMEOUT,
        )
        # 1: a ratio is too high, which depends on the other load of the machine.
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        synchronous, asynchronous = json.loads(output.read_text(encoding="utf-8"))
        for result in (synchronous, asynchronous):
            self.assertEqual({"idle": {}, "loaded": {}}, result["errors"])
            for row in result["rows"]:
                self.assertGreater(min(row["samples"]), 0, row)
                self.assertIn(f"{row['calls']:24} p50/p95 in ms: idle", done.stdout)
        self.assertEqual({"202": 3}, asynchronous["answers to the noisy tenant"])
        self.assertGreater(synchronous["answers to the noisy tenant"]["200"], 0)
