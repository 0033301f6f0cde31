# SPDX-License-Identifier: Apache-2.0
"""Volumes that are uploaded to images, and that get other images, with a fake Glance."""

import secrets
from types import SimpleNamespace
from unittest import mock
import uuid

from attachd.db.volumes import volume_store
from attachd.images import upload
from attachd.manager.periodic_tasks import recovery
from attachd.periodics import Backoff
from attachd.tests.fixtures import conf_fixture, fake_nova, wsgi_api
from attachd.tests.functional.test_images import ImageCase
from attachd.tests.wait import wait_until

MIB = 2**20


class UploadTest(ImageCase):
    """Uploads of volumes of one GiB, of which one MiB counts."""

    def setUp(self):
        super().setUp()
        patched = mock.patch.object(upload, "units", SimpleNamespace(Gi=MIB, Mi=MIB))
        patched.start()
        self.addCleanup(patched.stop)
        body = {"volume": {"size": 1, "name": "disk"}}
        self.volume = self.expect(202, "POST", "/volumes", body).body["volume"]["id"]
        self.finished(self.volume)

    def upload(self, status=202, version="volume 3.71", **fields):
        body = {"image_name": "made", **fields}
        answer = self.act(self.volume, "os-volume_upload_image", body, status, version=version)
        return answer.body["os-volume_upload_image"] if status == 202 else answer.fault

    def ended(self, status="available"):
        wait_until(lambda: self.show(self.volume)["status"] != "uploading")
        self.assertEqual(status, self.show(self.volume)["status"])

    def test_uploaded_volume_is_an_active_image(self):
        answer = self.upload(disk_format="raw", visibility="shared", protected=True)
        expected = {
            "id": self.volume,
            "status": "uploading",
            "image_name": "made",
            "size": 1,
            "disk_format": "raw",
            "container_format": "bare",
            "visibility": "shared",
            "protected": True,
            "volume_type": None,
            "display_description": None,
        }
        self.assertEqual(expected, {name: answer[name] for name in expected})
        self.ended()
        image = self.glance.images[answer["image_id"]]
        self.assertEqual(
            ("active", "made", "shared", True, MIB),
            tuple(image[name] for name in ("status", "name", "visibility", "protected", "size")),
        )

    def test_image_is_made_by_caller_and_filled_by_service(self):
        self.upload()
        self.ended()
        tokens = {
            (method, path.rpartition("/")[2]): token
            for method, path, token in self.glance.requests
            if method != "GET"
        }
        self.assertEqual(wsgi_api.MEMBER, tokens["POST", "images"])
        self.assertNotEqual(wsgi_api.MEMBER, tokens["PUT", "file"])

    def test_first_versions_have_no_visibility(self):
        answer = self.upload(version="volume 3.0")
        self.assertFalse({"visibility", "protected"} & answer.keys())
        self.ended()
        self.act(
            self.volume,
            "os-volume_upload_image",
            {"image_name": "x", "protected": True},
            400,
            version="volume 3.0",
        )

    def test_image_has_properties_of_image_on_volume(self):
        pairs = {"hw_disk_bus": "scsi", "image_name": "old", "os_glance_x": "y"}
        self.act(self.volume, "os-set_image_metadata", {"metadata": pairs}, 200)
        image = self.glance.images[self.upload()["image_id"]]
        self.assertEqual(("scsi", "made"), (image["hw_disk_bus"], image["name"]))
        self.assertNotIn("os_glance_x", image)
        self.ended()

    def test_metadata_does_not_set_attributes_of_image(self):
        pairs = {"visibility": "public", "owner": "z", "protected": "true", "location": "x"}
        pairs |= {"images": "", "block_device_mapping": "x"}
        self.act(self.volume, "os-set_image_metadata", {"metadata": pairs}, 200)
        image = self.glance.images[self.upload(version="volume 3.0")["image_id"]]
        self.ended()
        self.assertEqual(
            ("active", "private", False, "a" * 32),
            tuple(image[name] for name in ("status", "visibility", "protected", "owner")),
        )
        self.assertEqual(("", "x"), (image["images"], image["block_device_mapping"]))
        self.assertNotIn("location", image)

    def test_public_image_needs_its_policy(self):
        self.upload(403, visibility="public")
        answer = self.act(
            self.volume,
            "os-volume_upload_image",
            {"image_name": "made", "visibility": "public"},
            token=wsgi_api.ADMIN,
        )
        self.ended()
        image = answer.body["os-volume_upload_image"]["image_id"]
        self.assertEqual("public", self.glance.images[image]["visibility"])

    def test_converted_volume_is_smaller_than_its_size(self):
        conf_fixture.override(self, "conversion_free_space", 0, group="glance")
        image = self.upload(disk_format="qcow2")["image_id"]
        self.ended()
        self.assertTrue(self.glance.data[image].startswith(b"QFI\xfb"))
        self.assertLess(len(self.glance.data[image]), MIB)

    def test_format_and_container_that_are_not_supported_are_refused(self):
        self.assertIn("ploop", self.upload(400, disk_format="ploop"))
        self.assertIn("ova", self.upload(400, container_format="ova"))
        self.assertEqual({}, self.glance.images)

    def test_attached_volume_is_not_uploaded(self):
        self.create_attachment(self.volume, connector={"host": "compute-1"})
        for force in (False, True):
            self.assertIn("must be available to upload", self.upload(400, force=force))

    def attached(self, enable=True):
        """Attach the volume, and permit its upload."""
        conf_fixture.override(self, "enable_force_upload", enable, group="glance")
        attachment = self.create_attachment(self.volume, connector={"host": "compute-1"})
        self.expect(204, "POST", f"/attachments/{attachment}/action", {"os-complete": None})
        self.assertEqual("in-use", self.show(self.volume)["status"])
        return attachment

    def test_volume_in_use_is_uploaded_by_force(self):
        self.attached()
        answer = self.upload(force=True)
        self.assertEqual("uploading", answer["status"])
        self.ended("in-use")
        self.assertEqual("active", self.glance.images[answer["image_id"]]["status"])
        self.assertEqual({}, self.driver.list_snapshots())
        self.assertNotIn("open_data", [call.method for call in self.driver.calls])

    def test_volume_in_use_is_refused_without_force_or_permission(self):
        self.attached()
        self.assertIn("must be available to upload", self.upload(400))
        conf_fixture.override(self, "enable_force_upload", False, group="glance")
        self.assertIn("must be available to upload", self.upload(400, force=True))
        self.assertEqual({}, self.glance.images)

    def test_available_volume_is_uploaded_by_force_without_snapshot(self):
        conf_fixture.override(self, "enable_force_upload", True, group="glance")
        self.upload(force=True)
        self.ended()
        self.assertNotIn("create_snapshot", [call.method for call in self.driver.calls])

    def test_host_detaches_while_volume_in_use_is_uploaded(self):
        attachment = self.attached()
        self.glance.stop_in_the_middle()
        self.upload(force=True)
        wait_until(lambda: any(call.method == "open_snapshot" for call in self.driver.calls))
        self.expect(400, "POST", "/attachments", {"attachment": {"volume_uuid": self.volume}})
        self.expect(200, "DELETE", f"/attachments/{attachment}")
        self.assertEqual("uploading", self.show(self.volume)["status"])
        self.glance.over.set()
        self.ended()
        self.assertEqual({}, self.driver.list_snapshots())

    def test_snapshot_of_upload_is_shown_to_administrators_alone(self):
        self.attached()
        self.glance.stop_in_the_middle()
        image = self.upload(force=True)["image_id"]
        self.assertEqual([], self.expect(200, "GET", "/snapshots").body["snapshots"])
        self.expect(404, "GET", f"/snapshots/{image}")
        path = "/snapshots?all_tenants=1"
        shown = self.expect(200, "GET", path, token=wsgi_api.ADMIN).body["snapshots"]
        self.assertEqual([image], [item["id"] for item in shown])
        self.glance.over.set()
        self.ended("in-use")

    def test_refused_image_leaves_volume_in_use_without_snapshot(self):
        self.attached()
        for refusal, status in ((403, 403), (500, 503)):
            self.glance.refuse_create = (refusal, b"<title>x</title><b>No.</b>")
            self.upload(status, force=True)
            self.ended("in-use")
        path = "/snapshots?all_tenants=1"
        self.assertEqual([], self.expect(200, "GET", path, token=wsgi_api.ADMIN).body["snapshots"])

    def test_failed_upload_of_volume_in_use_leaves_no_image_and_a_message(self):
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        self.attached()
        self.glance.refuse_data = [(413, b"too large")]
        self.upload(force=True)
        self.ended("in-use")
        self.assertEqual(({}, {}), (self.glance.images, self.driver.list_snapshots()))
        path = f"/messages?resource_uuid={self.volume}"
        self.assertEqual(1, len(self.expect(200, "GET", path).body["messages"]))

    def test_second_upload_is_refused_while_one_runs(self):
        self.glance.stop_in_the_middle()
        self.upload()
        self.assertIn("currently uploading", self.upload(400))
        self.assertEqual(1, len(self.glance.images))
        self.expect(400, "DELETE", f"/volumes/{self.volume}")
        self.glance.over.set()
        self.ended()

    def test_refused_image_leaves_volume_as_it_was(self):
        for refusal, status in ((403, 403), (409, 409), (400, 400), (500, 503), (413, 400)):
            with self.subTest(refusal):
                self.glance.refuse_create = (refusal, b"<title>x</title><b>No.</b>")
                self.upload(status)
                self.ended()
        self.assertEqual({}, self.glance.images)

    def test_interrupted_upload_is_sent_again(self):
        self.glance.refuse_data = [(503, b"")]
        image = self.upload()["image_id"]
        self.ended()
        self.assertEqual("active", self.glance.images[image]["status"])

    def test_failed_upload_leaves_no_image_and_a_message(self):
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        for refusal in ((503, b""), (413, b"too large")):
            self.glance.refuse_data = [refusal]
            self.upload(protected=True)
            self.ended()
            self.assertEqual({}, self.glance.images)
        path = f"/messages?resource_uuid={self.volume}"
        self.assertEqual(2, len(self.expect(200, "GET", path).body["messages"]))

    def recover(self):
        recovery.recover_all(self.api.backend, Backoff())
        wait_until(lambda: not self.api.backend.background_tasks.is_busy)

    def test_image_that_is_made_slowly_is_waited_for(self):
        make = self.glance._create

        def make_later(*request):
            self.recover()
            return make(*request)

        with mock.patch.object(self.glance, "_create", make_later):
            image = self.upload()["image_id"]
        self.ended()
        self.assertEqual("active", self.glance.images[image]["status"])

    def test_image_whose_making_was_not_answered_is_deleted(self):
        make = self.glance._create

        def lose_answer(*request):
            make(*request)
            return 504, b""

        for force, status in ((False, "available"), (True, "in-use")):
            if force:
                self.attached()
            with mock.patch.object(self.glance, "_create", lose_answer):
                self.upload(503, force=force)
            self.assertEqual("uploading", self.show(self.volume)["status"])
            self.recover()
            self.assertEqual(status, self.show(self.volume)["status"])
            self.assertEqual({}, self.glance.images)

    def test_image_that_is_made_for_a_volume_that_was_reset_is_deleted(self):
        make = self.glance._create

        def reset_before(*request):
            volume_store.reset(self.volume, "available", None)
            return make(*request)

        with mock.patch.object(self.glance, "_create", reset_before):
            self.assertIn("Upload it again", self.upload(409, protected=True))
        self.assertEqual({}, self.glance.images)

    def test_upload_and_its_image_outlast_outages(self):
        make = self.glance._create

        def lose_backend(*request):
            self.api.backend.error = "The cluster does not answer."
            return make(*request)

        with mock.patch.object(self.glance, "_create", lose_backend):
            image = self.upload()["image_id"]
        wait_until(lambda: not self.api.backend.background_tasks.is_busy)
        self.assertEqual("uploading", self.show(self.volume)["status"])
        self.api.backend.error = None
        self.recover()
        self.ended()
        self.assertEqual("active", self.glance.images[image]["status"])

    def test_image_deleted_meanwhile_ends_upload(self):
        self.glance.before_piece = lambda _offset: self.glance.images.clear()
        self.upload()
        self.ended()

    def test_caller_of_other_project_finds_no_volume(self):
        self.act(
            self.volume,
            "os-volume_upload_image",
            {"image_name": "x"},
            404,
            token=wsgi_api.OTHER_PROJECT_MEMBER,
        )


class ReimageTest(ImageCase):
    def setUp(self):
        super().setUp()
        self.volume = self.create(self.glance.add(b"old" * 1000, name="old", os_distro="x"))
        self.finished(self.volume)
        self.image = self.glance.add(b"new" * 1000, name="new")

    def reimage(self, status=202, image=None, **fields):
        body = {"image_id": image or self.image, **fields}
        answer = self.act(self.volume, "os-reimage", body, status)
        return answer.fault if status != 202 else None

    def names(self):
        return self.show(self.volume)["volume_image_metadata"]["image_name"]

    def test_volume_gets_other_image_and_its_metadata(self):
        self.driver.calls.clear()
        self.reimage()
        volume = self.finished(self.volume)
        self.assertEqual("new", volume["volume_image_metadata"]["image_name"])
        self.assertNotIn("os_distro", volume["volume_image_metadata"])
        methods = [call.method for call in self.driver.calls if call.volume == self.volume]
        self.assertEqual(["delete", "create", "open_data", "write_data"], methods)

    def test_status_is_downloading_meanwhile(self):
        self.glance.stop_in_the_middle()
        self.reimage(image=self.glance.add(secrets.token_bytes(3 * MIB)))
        self.assertEqual("downloading", self.show(self.volume)["status"])
        self.expect(400, "POST", "/attachments", {"attachment": {"volume_uuid": self.volume}})
        self.glance.over.set()
        self.finished(self.volume)

    def test_reserved_volume_needs_field(self):
        self.create_attachment(self.volume, instance_uuid=f"{uuid.uuid4()}")
        self.assertIn("available or error", self.reimage(400))
        self.reimage(reimage_reserved=True)
        self.finished(self.volume, "reserved")
        self.assertEqual("new", self.names())

    def test_reservation_is_not_connected_meanwhile(self):
        attachment = self.create_attachment(self.volume, instance_uuid=f"{uuid.uuid4()}")
        conf_fixture.override(self, "attach_timeout", 1, "rpc")  # the subject
        self.glance.stop_in_the_middle()
        self.reimage(image=self.glance.add(secrets.token_bytes(3 * MIB)), reimage_reserved=True)
        body = {"attachment": {"connector": {"host": "compute-1"}}}
        answer = self.api.request("PUT", f"/attachments/{attachment}", body)
        self.assertIn(answer.status, (409, 503, 504), answer.raw)
        self.glance.over.set()
        self.finished(self.volume, "reserved")

    def test_volume_in_use_is_refused(self):
        self.create_attachment(self.volume, connector={"host": "compute-1"})
        self.assertIn("status must be available", self.reimage(400, reimage_reserved=True))
        self.assertEqual("old", self.names())

    def test_unfit_images_are_refused(self):
        self.reimage(400, image=self.glance.add(b"x", min_disk=2))
        self.reimage(404, image=f"{uuid.uuid4()}")
        self.assertEqual("available", self.show(self.volume)["status"])

    def test_failed_reimage_leaves_empty_volume_in_error_and_can_be_repeated(self):
        self.reimage(image=self.glance.add(b"bad", os_hash_value="0"))
        self.finished(self.volume, "error")
        self.assertEqual([self.volume], list(self.driver.list_volumes()))
        self.reimage()
        self.finished(self.volume)
        self.assertIsNone(volume_store.get(self.volume, None)["error"])

    def test_compute_is_notified_of_server_that_waits(self):
        nova = fake_nova.FakeNova(self)
        for name, value in {"endpoint_override": nova.url, "auth_type": "none"}.items():
            conf_fixture.override(self, name, value, group="nova")
        server = f"{uuid.uuid4()}"
        nova.add_server(server)
        self.create_attachment(self.volume, instance_uuid=server)
        self.reimage(reimage_reserved=True)
        self.finished(self.volume, "reserved")
        wait_until(lambda: nova.events)
        (event,) = nova.events
        self.assertEqual(
            ("volume-reimaged", server, self.volume, "completed"),
            tuple(event[name] for name in ("name", "server_uuid", "tag", "status")),
        )

    def test_version_before_has_no_such_action(self):
        body = {"image_id": self.image}
        self.act(self.volume, "os-reimage", body, 404, version="volume 3.67")
