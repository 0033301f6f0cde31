# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import unittest

from attachd.docker_volume.engines import Engines


class EnginesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.engines = Engines()

    def test_living_engine_ends_use_until_it_is_discarded(self):
        for _ in range(2):
            self.engines.add("v", "a", os.getpid())
        self.assertTrue(self.engines.will_end("v", "a"))
        self.assertFalse(self.engines.will_end("v", "b"))
        for _ in range(2):
            self.engines.discard("v", "a")
        self.assertFalse(self.engines.will_end("v", "a"))

    def test_engine_that_has_ended_ends_no_use(self):
        engine = subprocess.Popen(["sleep", "60"])
        self.engines.add("v", "a", engine.pid)
        self.assertTrue(self.engines.will_end("v", "a"))
        engine.kill()
        engine.wait()
        self.assertFalse(self.engines.will_end("v", "a"))
        self.engines.add("v", "b", engine.pid)
        self.engines.add("v", "c", 0)
        for use in ("b", "c"):
            self.assertFalse(self.engines.will_end("v", use))
