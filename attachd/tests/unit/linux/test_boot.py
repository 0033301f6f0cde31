# SPDX-License-Identifier: Apache-2.0

import time
import unittest
from unittest import mock
import uuid

from attachd.linux import boot


class BootTest(unittest.TestCase):
    def test_id_is_the_same_until_the_next_start(self):
        self.assertEqual(boot.read_id(), f"{uuid.UUID(boot.read_id())}")

    def test_clock_continues_during_suspend(self):
        with mock.patch.object(time, "clock_gettime", lambda clock: clock):
            self.assertEqual(time.CLOCK_BOOTTIME, boot.boot_clock())
