# SPDX-License-Identifier: Apache-2.0
from collections import Counter
import itertools
import unittest

from attachd.tests.soak import deployment, plan


def intended(seed, client, count=200):
    """Return what a client intends first."""
    drawn = itertools.islice(plan.intentions(seed, client, ordinary=6, shared=2), count)
    return [item._replace(chance=item.chance.random()) for item in drawn]


class IntentionsTest(unittest.TestCase):
    def test_intentions_depend_only_on_seed_and_client(self):
        self.assertEqual(intended(1, 2), intended(1, 2))
        self.assertNotEqual(intended(1, 2), intended(2, 2))
        self.assertNotEqual(intended(1, 2), intended(1, 3))

    def test_intentions_have_unique_server_key_and_name(self):
        drawn = [item for client in range(4) for item in intended(1, client)]
        for name in ("server", "key", "name"):
            self.assertEqual(len(drawn), len({getattr(item, name) for item in drawn}), name)

    def test_intentions_cover_all_kinds_and_volumes(self):
        drawn = intended(1, 0)
        self.assertEqual(set(plan.INTENTIONS), {item.kind for item in drawn})
        volumes = {(item.shared, item.volume) for item in drawn}
        self.assertEqual(6 + 2, len(volumes))


class KillsTest(unittest.TestCase):
    def test_kills_depend_only_on_seed(self):
        self.assertEqual(plan.kills(1, 600), plan.kills(1, 600))
        self.assertNotEqual(plan.kills(1, 600), plan.kills(2, 600))

    def test_kills_of_long_run_are_even(self):
        drawn = plan.kills(1, 1200)
        times = Counter(item.kind for item in drawn)
        self.assertEqual(set(deployment.KINDS), set(times))
        self.assertLessEqual(max(times.values()) - min(times.values()), 1)
        self.assertAlmostEqual(1200 / plan.GAP, len(drawn), delta=10)

    def test_kills_of_short_run_cover_nearly_all_kinds(self):
        for seed in range(20):
            drawn = plan.kills(seed, 60)
            self.assertGreaterEqual(len(drawn), len(deployment.KINDS) - 1)
            self.assertEqual(sorted(item.after for item in drawn), [item.after for item in drawn])
            self.assertLess(drawn[-1].after, 60)
