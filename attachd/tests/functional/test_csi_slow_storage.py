# SPDX-License-Identifier: Apache-2.0
"""attachd-csi where storage is slower than the caller waits, fails, or the driver is killed."""

import unittest
import uuid

import grpc

from attachd.tests import wait
from attachd.tests.fixtures import csi_driver, deployments, http_client
from attachd.tests.fixtures.csi_requests import GIB, new_volume, sizes
from attachd.tests.selection import full_only

_SLOW = """
[DEFAULT]
enabled_backends = slow

[slow]
driver = fake
fake_delay = 2
"""
_BROKEN = """
[DEFAULT]
enabled_backends = broken

[broken]
driver = fake
fake_fail = create
"""
_SHORT = 1.0
"""Seconds that the caller waits: less than the storage needs."""


class SlowCase(unittest.TestCase):
    """Each test has the driver and the all-in-one of the process, with slow storage."""

    def setUp(self):
        super().setUp()
        self.url = deployments.shared_all_in_one(self, _SLOW).url
        self.api = http_client.Client(f"{self.url}/v3")
        self.driver = csi_driver.shared(self, self.url)
        self.fields = new_volume(f"pvc-{uuid.uuid4()}")

    def volumes(self):
        """Return the volumes of the API."""
        return self.api.request_json("GET", "/volumes/detail")["volumes"]

    def aborted(self, name, /, **fields):
        """Make a call whose caller does not wait for the storage; return the message."""
        with self.assertRaises(grpc.RpcError) as caught:
            self.driver.call(name, timeout=_SHORT, **fields)
        self.assertIs(grpc.StatusCode.ABORTED, caught.exception.code(), caught.exception)
        return caught.exception.details()

    def repeat(self, name, /, **fields):
        """Make a call until it succeeds, each time with a short limit; return the response."""

        def succeed():
            try:
                return [self.driver.call(name, timeout=_SHORT, **fields)]
            except grpc.RpcError as error:
                codes = (grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED)
                self.assertIn(error.code(), codes, error)
                return []

        (response,) = wait.wait_until(succeed)
        return response


class SlowStorageTest(SlowCase):
    def test_work_goes_on_and_is_found_by_next_calls(self):
        self.assertIn("is being created", self.aborted("CreateVolume", **self.fields))
        volume = self.repeat("CreateVolume", **self.fields).volume
        (stored,) = self.volumes()
        self.assertEqual(volume.volume_id, stored["id"])
        larger = {"volume_id": volume.volume_id, "capacity_range": sizes(2 * GIB)}
        self.assertIn("is being extended", self.aborted("ControllerExpandVolume", **larger))
        self.assertEqual(2 * GIB, self.repeat("ControllerExpandVolume", **larger).capacity_bytes)
        self.assertIn("is being deleted", self.aborted("DeleteVolume", volume_id=volume.volume_id))
        self.repeat("DeleteVolume", volume_id=volume.volume_id)
        self.assertEqual([], self.volumes())


class BrokenStorageTest(unittest.TestCase):
    def test_failed_volumes_are_deleted_and_their_reason_is_reported(self):
        url = deployments.shared_all_in_one(self, _BROKEN).url
        api = http_client.Client(f"{url}/v3")
        driver = csi_driver.shared(self, url)
        text = driver.fail("UNAVAILABLE", "CreateVolume", **new_volume(f"pvc-{uuid.uuid4()}"))
        self.assertIn("could not be created and is deleted", text)
        wait.wait_until(lambda: not api.request_json("GET", "/volumes")["volumes"])


@full_only("containers")
class KilledDriverTest(SlowCase):
    """The driver is killed while it creates volumes."""

    def test_create_volume_after_kill_returns_one_volume(self):
        other = csi_driver.CsiDriver(self, self.url)
        for number in range(20):
            fields = new_volume(f"pvc-{uuid.uuid4()}")
            with self.assertRaises(grpc.RpcError):
                # The moments of the kills: from before the request to after it.
                other.call("CreateVolume", timeout=0.02 * number + 0.01, **fields)
            other.kill()
            volume = self.repeat("CreateVolume", **fields).volume
            other.start()
            again = other.call("CreateVolume", **fields).volume
            self.assertEqual(volume, again)
            (stored,) = [item for item in self.volumes() if item["name"] == fields["name"]]
            self.assertEqual(volume.volume_id, stored["id"])
