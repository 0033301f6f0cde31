# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import capacity, csi_pb2
from attachd.platforms.calls import CallError
from attachd.tests.fixtures.csi_requests import GIB, mount, zone
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal


def _pool(host, free):
    return {"name": f"{host}#pool", "capabilities": {"free_capacity_gb": free}}


class CapacityTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.storage.pool_list = [_pool("a@x", 5.5), _pool("b@x", 2), _pool("c@x", -1)]
        self.storage.zone_map = {"a@x": "one", "b@x": "two", "c@x": "two"}

    def read(self, **fields):
        found = capacity.read(self.storage, csi_pb2.GetCapacityRequest(**fields))
        return found.available_capacity // GIB, found.maximum_volume_size.value // GIB

    def test_capacity_is_sum_and_largest_pool(self):
        self.assertEqual((7, 5), self.read())

    def test_zone_selects_pools(self):
        self.assertEqual((2, 2), self.read(accessible_topology=zone("two")))
        self.assertEqual((0, 0), self.read(accessible_topology=zone("three")))

    def test_pool_without_limit_counts_as_largest_volume(self):
        self.storage.pool_list = [_pool("a@x", "infinite")]
        self.assertEqual((10**9 - 1, 10**9 - 1), self.read())

    def test_capability_that_is_impossible_has_no_capacity(self):
        self.assertEqual((0, 0), self.read(volume_capabilities=[mount("MULTI_NODE_MULTI_WRITER")]))

    def test_errors_of_api_have_their_codes(self):
        for status, code in ((404, "INVALID_ARGUMENT"), (403, "PERMISSION_DENIED")):
            self.storage.failures = [refusal(status)]
            with self.assertRaises(CallError) as caught:
                self.read()
            self.assertEqual(code, caught.exception.code.name)
