# SPDX-License-Identifier: Apache-2.0
"""Volumes that are made of images of a fake Glance, and the answers to requests for them."""

import json
import secrets

from attachd.tests.fixtures import conf_fixture, fake_glance, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

MIB = 2**20
_UNKNOWN = "11111111-2222-4333-8444-555555555555"


class ImageCase(ApiCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.use(self)

    def create(self, image, status=202, **fields):
        body = {"volume": {"size": 1, "imageRef": image, **fields}}
        answer = self.expect(status, "POST", "/volumes", body)
        return answer.body["volume"]["id"] if status == 202 else answer.fault

    def show(self, volume_id):
        return self.expect(200, "GET", f"/volumes/{volume_id}").body["volume"]

    def finished(self, volume_id, status="available"):
        """Wait for the end of a creation, and return the volume."""
        wait_until(lambda: self.show(volume_id)["status"] not in {"creating", "downloading"})
        volume = self.show(volume_id)
        self.assertEqual(status, volume["status"], volume)
        return volume

    def error_of(self, volume_id):
        """Wait for a failed creation, and return what it left at the backend and the reason."""
        self.finished(volume_id, "error")
        self.assertEqual({}, dict(self.driver.list_volumes()))
        path = f"/messages?resource_uuid={volume_id}"
        return self.expect(200, "GET", path).body["messages"]


class CreateTest(ImageCase):
    def test_volume_of_image_is_bootable_and_shows_its_metadata(self):
        image = self.glance.add(
            b"data" * 1000, name="Debian", min_ram=512, hw_disk_bus="scsi", description=None
        )
        volume = self.finished(self.create(image))
        self.assertEqual("true", volume["bootable"])
        expected = {
            "image_id": image,
            "image_name": "Debian",
            "checksum": self.glance.images[image]["checksum"],
            "container_format": "bare",
            "disk_format": "raw",
            "min_disk": "0",
            "min_ram": "512",
            "size": "4000",
            "hw_disk_bus": "scsi",
        }
        self.assertEqual(expected, volume["volume_image_metadata"])

    def test_clone_of_volume_of_image_keeps_its_metadata(self):
        source = self.create(self.glance.add(b"data", name="Debian"))
        self.finished(source)
        body = {"volume": {"source_volid": source}}
        clone = self.expect(202, "POST", "/volumes", body).body["volume"]["id"]
        volume = self.finished(clone)
        self.assertEqual("Debian", volume["volume_image_metadata"]["image_name"])
        self.assertEqual("true", volume["bootable"])

    def test_image_is_found_by_name_and_by_url(self):
        image = self.glance.add(b"data", name="Debian")
        for reference in ("Debian", f"http://glance.example/v2/images/{image}"):
            volume = self.finished(self.create(reference))
            self.assertEqual(image, volume["volume_image_metadata"]["image_id"])

    def test_ambiguous_name_is_refused(self):
        for _ in range(2):
            self.glance.add(b"data", name="Debian")
        self.assertIn("Multiple matches found for 'Debian'", self.create("Debian", 409))

    def test_unknown_image_is_refused(self):
        for reference in (_UNKNOWN, "nothing"):
            self.assertIn("unable to access requested image", self.create(reference, 400))

    def test_image_that_caller_does_not_see_is_refused(self):
        image = self.glance.add(b"data")
        self.glance.may_see = lambda token, _image: token != wsgi_api.MEMBER
        self.assertIn("unable to access requested image", self.create(image, 400))

    def test_unfit_image_is_refused_with_reason(self):
        cases = [
            ("is not active", {"status": "queued"}),
            ("larger than volume size 1GB", {"size": 2**30 + 1}),
            ("minDisk size 2GB", {"min_disk": 2}),
            ("doesn't fit in a volume of size 1GB", {"virtual_size": 2**31}),
            ("its format is ploop", {"disk_format": "ploop"}),
            ("in a container, docker", {"container_format": "docker"}),
            ("has a signature", {"img_signature": "x"}),
        ]
        for reason, fields in cases:
            with self.subTest(reason):
                self.assertIn(reason, self.create(self.glance.add(b"data", **fields), 400))
        self.assertEqual([], self.expect(200, "GET", "/volumes").body["volumes"])

    def test_properties_of_any_name_and_value_are_answered(self):
        self.finished(self.create(self.glance.add(b"data", images="")))
        for value in ("x", "[1]"):
            image = self.glance.add(b"data", block_device_mapping=value)
            self.assertIn("is unacceptable", self.create(image, 400))
        self.create(self.glance.add(b"data", min_disk=float("inf")), 503)

    def test_signed_image_is_taken_if_operator_says_so(self):
        conf_fixture.override(self, "signed_images", "ignore", group="glance")
        self.finished(self.create(self.glance.add(b"data", img_signature="x")))

    def test_image_without_data_is_refused(self):
        self.assertIn("has no data", self.create(self.glance.add(b""), 400))

    def test_image_of_snapshot_makes_volume_of_snapshot(self):
        source = self.create(self.glance.add(b"data", name="Debian"))
        self.finished(source)
        body = {"snapshot": {"volume_id": source}}
        snapshot = self.expect(202, "POST", "/snapshots", body).body["snapshot"]["id"]
        path = f"/snapshots/{snapshot}"
        wait_until(lambda: self.expect(200, "GET", path).body["snapshot"]["status"] == "available")
        devices = [
            {"source_type": "snapshot", "boot_index": 1, "snapshot_id": _UNKNOWN},
            {"source_type": "snapshot", "boot_index": 0, "snapshot_id": snapshot},
        ]
        image = self.glance.add(b"", block_device_mapping=json.dumps(devices))
        volume = self.finished(self.create(image))
        self.assertEqual(snapshot, volume["snapshot_id"])
        image = self.glance.add(b"", block_device_mapping=json.dumps(devices[:1]))
        self.create(image, 400)

    def test_image_without_size_of_volume_is_refused(self):
        image = self.glance.add(b"data")
        self.assertIn("A size of at least 1 GiB", self.create(image, 400, size=None))

    def test_image_and_source_volume_are_refused(self):
        source = self.create(image := self.glance.add(b"data"))
        self.finished(source)
        self.assertIn("name one of them", self.create(image, 400, source_volid=source))

    def test_glance_that_is_away_is_answered_with_503(self):
        image = self.glance.add(b"data")
        self.glance.answer_all = (503, b"")
        self.assertIn("The Image service does not answer", self.create(image, 503))
        self.glance.answer_all = (200, b"[]")
        self.assertIn("not one of the Image service", self.create(image, 503))

    def test_image_names_the_type_of_volumes_that_name_none(self):
        for name in ("gold", "silver"):
            self.create_type(name, {})
        image = self.glance.add(b"data", cinder_img_volume_type="gold")
        self.assertEqual("gold", self.finished(self.create(image))["volume_type"])
        volume = self.finished(self.create(image, volume_type="silver"))
        self.assertEqual("silver", volume["volume_type"])

    def test_type_that_the_caller_does_not_see_is_not_taken_from_an_image(self):
        body = {"volume_type": {"name": "secret", "os-volume-type-access:is_public": False}}
        self.expect(200, "POST", "/types", body, token=wsgi_api.ADMIN)
        for name in ("secret", "nothing"):
            image = self.glance.add(b"data", cinder_img_volume_type=name)
            self.assertIsNone(self.finished(self.create(image))["volume_type"])

    def test_service_without_credentials_refuses_images(self):
        image = self.glance.add(b"data")
        conf_fixture.override(self, "auth_type", None, group="glance")
        self.assertIn("This service has no images", self.create(image, 400))


class TransferTest(ImageCase):
    """The transfer, in a manager."""

    def test_interrupted_transfer_starts_again_with_new_volume(self):
        image = self.glance.add(secrets.token_bytes(3 * MIB))
        self.glance.interrupt_after = [2 * MIB, MIB]
        self.finished(self.create(image))
        methods = [call.method for call in self.driver.calls]
        self.assertEqual(3, methods.count("create"))

    def test_transfer_that_is_interrupted_too_often_leaves_error(self):
        image = self.glance.add(secrets.token_bytes(3 * MIB))
        self.glance.interrupt_after = [2 * MIB] * 3
        (message,) = self.error_of(self.create(image))
        self.assertIn("The Image service does not answer", message["user_message"])

    def test_silent_glance_leaves_error(self):
        conf_fixture.override(self, "read_timeout", 0.5, group="glance")  # the subject
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        self.glance.stop_in_the_middle()
        self.error_of(self.create(self.glance.add(secrets.token_bytes(3 * MIB))))

    def test_image_deleted_meanwhile_leaves_error(self):
        image = self.glance.add(b"data")
        self.glance.may_see = lambda token, _image: token == wsgi_api.MEMBER
        self.error_of(self.create(image))

    def test_other_data_than_named_leaves_error(self):
        data = secrets.token_bytes(MIB)
        cases = {
            "hash": {"os_hash_value": "0" * 128},
            "checksum": {"os_hash_algo": None, "os_hash_value": None, "checksum": "0" * 32},
            "no checksum": {"os_hash_algo": None, "os_hash_value": None, "checksum": None},
            "shorter": {"size": MIB + 1},
            "longer": {"size": MIB - 1},
        }
        for name, fields in cases.items():
            with self.subTest(name):
                self.error_of(self.create(self.glance.add(data, **fields)))

    def test_failing_backend_leaves_error(self):
        conf_fixture.override(self, "fake_fail", ["write_data"], group="fake")
        self.error_of(self.create(self.glance.add(b"data")))

    def test_volume_can_be_deleted_by_force_while_image_is_transferred(self):
        self.glance.stop_in_the_middle()
        volume = self.create(self.glance.add(secrets.token_bytes(3 * MIB)))
        wait_until(lambda: any(call.method == "create" for call in self.driver.calls))
        self.expect(202, "DELETE", f"/volumes/{volume}?force=true", token=wsgi_api.ADMIN)
        self.glance.over.set()
        wait_until(lambda: self.api.request("GET", f"/volumes/{volume}").status == 404)
        self.assertEqual({}, dict(self.driver.list_volumes()))
