# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import expansion
from attachd.csi.new_volume import SizeRange
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.tests.fixtures.csi_requests import GIB
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal


class ExpansionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.volume = self.storage.add(size_gib=2)

    def expand(self, required, time_limit=30.0):
        with calls.serving(Call.start(time_limit)):
            return expansion.expand(
                self.storage, self.storage.volumes[self.volume.id], SizeRange(required)
            )

    def failed(self, required=3 * GIB, time_limit=30.0):
        with self.assertRaises(CallError) as caught:
            self.expand(required, time_limit)
        return caught.exception.code.name, f"{caught.exception}"

    def test_volume_of_size_is_left(self):
        self.assertEqual(2, self.expand(GIB).size_gib)
        self.assertEqual([], self.storage.requested)

    def test_volume_is_extended_and_waited_for(self):
        self.storage.statuses = ["extending", "extending", "in-use"]
        grown = self.expand(3 * GIB)
        self.assertEqual((3, "in-use"), (grown.size_gib, grown.status))

    def test_extension_in_progress_is_waited_for(self):
        self.storage.change(self.volume.id, status="extending")
        code, text = self.failed(time_limit=0.5)
        self.assertEqual("ABORTED", code)
        self.assertIn("is being extended", text)

    def test_volume_that_cannot_be_extended_now_is_aborted(self):
        self.storage.change(self.volume.id, status="error_extending")
        self.assertEqual("ABORTED", self.failed()[0])

    def test_refusals_have_their_codes(self):
        size = "Invalid input for field/attribute new_size. Value: 9."
        for failure, code in (
            (refusal(400, "invalid_input", size), "OUT_OF_RANGE"),
            (refusal(413, "volume_size_exceeded"), "OUT_OF_RANGE"),
            (refusal(413, "quota_exceeded"), "RESOURCE_EXHAUSTED"),
            (refusal(400, "no_valid_backend", "It has no online_extend."), "FAILED_PRECONDITION"),
            (refusal(400, "no_valid_backend"), "RESOURCE_EXHAUSTED"),
            (refusal(400, "invalid_volume"), "ABORTED"),
            (refusal(503, "unavailable"), "UNAVAILABLE"),
        ):
            self.storage.failures = [failure]
            self.assertEqual(code, self.failed()[0])

    def test_failed_extension_is_reported(self):
        self.storage.extend_volume = lambda *_arguments: None
        self.storage.statuses = ["extending", "available"]
        code, text = self.failed()
        self.assertEqual("UNAVAILABLE", code)
        self.assertIn("did not grow to 3 GiB, and is available: The disk is full.", text)

    def test_deleted_volume_is_not_found(self):
        self.storage.statuses = [None]
        self.assertEqual("NOT_FOUND", self.failed()[0])
