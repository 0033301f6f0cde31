# SPDX-License-Identifier: Apache-2.0
"""Volumes that are uploaded to images while a host writes to them."""

import hashlib
import secrets
import threading

from attachd.tests.fixtures import fake_glance, http_client
from attachd.tests.functional.test_image_cache import ServedCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

GIB = 2**30
MIB = 2**20

_SETTINGS = """\
[file]
file_loop_devices = never
file_hosts = *
[glance]
auth_type = none
endpoint_override = {url}
enable_force_upload = true
"""


@full_only("deployments")
class UploadInUseTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.FakeGlance(self)
        self.path.write_text(_SETTINGS.format(url=self.glance.url))
        self.start()
        self.client = http_client.Client(f"{self.server.url}/v3")
        self.volume = self.client.create_volume()
        (self.file,) = self.state.rglob(self.volume)
        self.before = secrets.token_bytes(2 * MIB)
        self.write(self.before)
        body = {"attachment": {"volume_uuid": self.volume, "connector": {"host": "one"}}}
        made = self.client.request_json("POST", "/attachments", body)["attachment"]
        self.client.request_json("POST", f"/attachments/{made['id']}/action", {"os-complete": {}})
        self.client.wait_for(self.volume, "in-use")

    def write(self, data):
        with self.file.open("r+b") as file:
            file.write(data)
            file.seek(GIB - len(data))
            file.write(data)

    def upload(self):
        """Begin an upload that stops in the middle, and return the id of the image."""
        arrived = threading.Event()

        def stop(offset):
            if offset:
                arrived.set()
                self.glance.over.wait(TIMEOUT)

        self.glance.before_piece = stop
        body = {"os-volume_upload_image": {"image_name": "x", "force": True}}
        path = f"/volumes/{self.volume}/action"
        answer = self.client.request_json("POST", path, body)["os-volume_upload_image"]
        self.assertTrue(arrived.wait(TIMEOUT))
        return answer["image_id"]

    def go_on(self):
        self.glance.before_piece = lambda _offset: None
        self.glance.over.set()

    def assert_uploaded(self, image):
        self.client.wait_for(self.volume, "in-use")
        digest = hashlib.sha512(self.before)
        for _ in range(GIB // MIB - 4):
            digest.update(bytes(MIB))
        digest.update(self.before)
        self.assertEqual(digest.hexdigest(), self.glance.images[image]["os_hash_value"])
        self.assertEqual([], [path for path in self.file.parent.rglob(image) if path.is_file()])
        shown = self.client.request_json("GET", "/snapshots?all_tenants=1")
        self.assertEqual([], shown["snapshots"])

    def test_image_has_data_of_the_moment_of_the_snapshot(self):
        image = self.upload()
        self.write(secrets.token_bytes(2 * MIB))
        self.go_on()
        self.assert_uploaded(image)

    def test_killed_manager_sends_the_same_snapshot_again(self):
        image = self.upload()
        self.write(secrets.token_bytes(2 * MIB))
        self.server.kill()
        self.go_on()
        self.start()
        self.client = http_client.Client(f"{self.server.url}/v3")
        wait_until(lambda: self.client.status(self.volume) != "uploading")
        self.assert_uploaded(image)
