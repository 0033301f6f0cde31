# SPDX-License-Identifier: Apache-2.0
"""A short soak test; see doc/source/contributor/soak-tests.rst for long ones."""

import testtools
from testtools import content

from attachd.tests.selection import full_only
from attachd.tests.soak import deployment, run

SECONDS = 60
CLIENTS = 6
SEED = 3
"""With which everything is killed in this time."""


@full_only("soak")
class SoakTest(testtools.TestCase):
    def test_soak_with_kills_leaves_a_linearizable_history(self):
        deployment.require(self)
        settings = run.Settings(seconds=SECONDS, seed=SEED, clients=CLIENTS, keys=run.knows_keys())
        said = []
        report = run.soak(self, settings, said.append)
        result = "\n".join([*said, f"{report}"])
        self.addDetail("report", content.text_content(result))
        self.assertEqual([], report.violations)
        self.assertEqual(set(deployment.KINDS), set(report.killed))
        # One that does nothing proves nothing.
        self.assertGreater(report.carried_out, CLIENTS)
