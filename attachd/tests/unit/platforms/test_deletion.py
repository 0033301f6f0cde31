# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.platforms import deletion
from attachd.platforms.calls import CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal


class DeletionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()

    def test_deletion_in_progress_is_waited_for_and_repeated_call_succeeds(self):
        volume = self.storage.add(status="deleting")
        self.storage.statuses = ["deleting", "deleting", None]
        for _ in range(2):
            deletion.delete(self.storage.volumes, volume.id)
        self.assertEqual([], self.storage.requested)

    def test_failed_deletion_has_reason(self):
        volume = self.storage.add(status="deleting")
        self.storage.statuses = ["deleting", "error_deleting"]
        with self.assertRaisesRegex(CallError, "error_deleting: The disk is full.") as caught:
            deletion.delete(self.storage.volumes, volume.id)
        self.assertEqual("UNAVAILABLE", caught.exception.code.name)

    def test_volume_that_another_caller_deletes_is_gone(self):
        volume = self.storage.add()
        self.storage.failures = [refusal(404, "volume_not_found")]
        self.storage.statuses = ["available", None]
        deletion.delete(self.storage.volumes, volume.id)

    def test_refused_deletion_is_an_error(self):
        volume = self.storage.add()
        self.storage.failures = [refusal(400, "invalid_volume")]
        with self.assertRaises(CallError) as caught:
            deletion.delete(self.storage.volumes, volume.id)
        self.assertEqual("FAILED_PRECONDITION", caught.exception.code.name)
