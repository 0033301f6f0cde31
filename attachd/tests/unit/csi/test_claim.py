# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import claim
from attachd.platforms.calls import CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage


class ClaimTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()

    def refused(self, volume):
        with self.assertRaises(CallError) as caught:
            claim.claim(self.storage, volume)
        return caught.exception.code.name, f"{caught.exception}"

    def test_volume_of_others_is_claimed_once(self):
        volume = self.storage.add()
        claim.claim(self.storage, volume)
        claimed = self.storage.volumes[volume.id]
        self.assertEqual({"csi.published": "true"}, claimed.metadata)
        requested = len(self.storage.requested)
        claim.claim(self.storage, claimed)
        self.assertEqual(requested, len(self.storage.requested))

    def test_volume_that_csi_has_created_needs_no_claim(self):
        claim.claim(self.storage, self.storage.add(metadata={"csi.id": "a"}))
        self.assertEqual([], self.storage.requested)

    def test_volume_of_docker_is_refused_with_its_name(self):
        volume = self.storage.add(metadata={"docker.name": "data"})
        code, text = self.refused(volume)
        self.assertEqual("FAILED_PRECONDITION", code)
        self.assertIn(f"Docker has volume {volume.id} as data", text)
        self.assertEqual([], self.storage.requested)

    def test_volume_that_docker_adopts_meanwhile_is_refused(self):
        volume = self.storage.add()
        self.storage.volumes.add_metadata(volume.id, {"docker.name": "data"})
        self.assertEqual("FAILED_PRECONDITION", self.refused(volume)[0])

    def test_volume_that_has_gone_meanwhile_is_not_found(self):
        volume = self.storage.add()
        self.storage.statuses = [None]
        self.assertEqual("NOT_FOUND", self.refused(volume)[0])
