# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.platforms import calls, waiting
from attachd.platforms.calls import Call, CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage


class WaitTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.volume = self.storage.add(status="creating")

    def wait(self, time_limit=30.0):
        with calls.serving(Call.start(time_limit)):
            return waiting.wait_while(
                self.storage.volumes, self.volume, {"creating"}, "being created"
            )

    def test_wait_ends_with_other_status(self):
        self.storage.statuses = ["creating", "creating", "error"]
        found = self.wait()
        assert found is not None
        self.assertEqual("error", found.status)

    def test_wait_ends_when_volume_is_gone(self):
        self.storage.statuses = ["creating", None]
        self.assertIsNone(self.wait())

    def test_wait_ends_before_limit_of_caller(self):
        with self.assertRaises(CallError) as caught:
            self.wait(1.0)  # less than the work takes
        self.assertEqual("ABORTED", caught.exception.code.name)
        self.assertEqual(
            f"Volume {self.volume.id} is being created. Repeat the call later.",
            f"{caught.exception}",
        )
