# SPDX-License-Identifier: Apache-2.0
import unittest
import uuid

from attachd.csi import pages
from attachd.platforms.calls import CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal


class PagesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()

    def failed(self, max_entries, token):
        with self.assertRaises(CallError) as caught:
            pages.read(self.storage.snapshots, max_entries, token)
        return caught.exception.code.name

    def test_page_is_asked_for_with_limit_token_and_filters(self):
        made, token = self.storage.snapshots.add(), str(uuid.uuid4())
        page = pages.read(self.storage.snapshots, 3, token, volume_id="v")
        self.assertEqual(([made], False), page)
        self.assertEqual([("page", (3, token, ("volume_id", "v")))], self.storage.requested)

    def test_empty_token_is_the_first_page(self):
        pages.read(self.storage.snapshots, 0, "")
        self.assertEqual([("page", (0, None))], self.storage.requested)

    def test_token_of_what_is_gone_is_aborted(self):
        self.storage.failures = [refusal(404, "marker_not_found")]
        for token in (str(uuid.uuid4()), "none"):
            self.assertEqual("ABORTED", self.failed(0, token))

    def test_other_errors_are_those_of_the_api(self):
        self.storage.failures = [refusal(403)]
        self.assertEqual("PERMISSION_DENIED", self.failed(0, ""))

    def test_negative_number_is_refused(self):
        self.assertEqual("INVALID_ARGUMENT", self.failed(-1, ""))
        self.assertEqual([], self.storage.requested)
