# SPDX-License-Identifier: Apache-2.0
"""Requests to the Image service, and what is read of its answers."""

from unittest import mock

from attachd import exception
from attachd.images import glance
from attachd.tests.fixtures import conf_fixture, fake_glance
from attachd.tests.wait import TIMEOUT

_BODY = {
    "id": "i",
    "name": "Debian",
    "status": "active",
    "size": None,
    "virtual_size": None,
    "min_disk": 3,
    "min_ram": 0,
    "disk_format": "raw",
    "container_format": "bare",
    "checksum": None,
    "owner": "p",
    "tags": ["a"],
    "file": "/v2/images/i/file",
    "hw_disk_bus": "scsi",
    "empty": None,
}


class ImageTest(conf_fixture.DefaultConfCase):
    def test_image_has_what_volume_keeps(self):
        image = glance.Image.parse(_BODY)
        expected = {
            "image_id": "i",
            "image_name": "Debian",
            "min_disk": "3",
            "min_ram": "0",
            "disk_format": "raw",
            "container_format": "bare",
            "hw_disk_bus": "scsi",
        }
        self.assertEqual(expected, dict(image.metadata))
        self.assertEqual((0, None, 3), (image.size, image.virtual_size, image.min_disk))

    def test_image_has_the_locations_that_are_shown(self):
        self.assertEqual([], glance.Image.parse(_BODY).locations)
        locations = [{"url": "b", "metadata": {}}]
        image = glance.Image.parse({**_BODY, "direct_url": "a", "locations": locations})
        self.assertEqual(["a", "b"], image.locations)

    def test_locations_are_asked_for_where_they_are_not_shown(self):
        fake = fake_glance.use(self)
        api = glance.ImageApi.of_service()
        image = api.get(fake.add(b"x"))
        self.assertEqual(0, len(api.list_locations(image)))
        fake.answer_all = (200, b'[{"url": "rbd://a/b/c/d", "metadata": {}}]')
        self.assertEqual(["rbd://a/b/c/d"], api.list_locations(image))
        for answer in (b"{}", b"[1]", b"x", b"null"):
            fake.answer_all = (200, answer)
            self.assertEqual(0, len(api.list_locations(image)), answer)
        self.assertFalse(image.is_signed)

    def test_image_with_signature_is_signed(self):
        self.assertTrue(glance.Image.parse({**_BODY, "img_signature": "x"}).is_signed)

    def test_property_has_the_name_of_a_list(self):
        fake = fake_glance.use(self)
        for value in ("", "abc"):
            image = glance.ImageApi.of_service().get(fake.add(b"x", images=value))
            self.assertEqual(value, image.metadata["images"])

    def test_attributes_of_other_types_are_none_of_an_image(self):
        fake = fake_glance.use(self)
        for name, value in (
            *(("min_disk", float("inf")), ("size", "1"), ("disk_format", ["raw"])),
            *(("os_hash_algo", ["x"]), ("updated_at", {}), ("locations", [{}])),
        ):
            image = fake.add(b"x", **{name: value})
            with self.subTest(name), self.assertRaisesRegex(exception.Unavailable, "not one of"):
                glance.ImageApi.of_service().get(image)

    def test_list_without_images_is_no_list(self):
        fake = fake_glance.use(self)
        for answer in (b"{}", b"[]", b'{"images": 1}', b'{"images": ["x"]}', b"1" * 5000):
            fake.answer_all = (200, answer)
            with self.subTest(answer[:9]), self.assertRaises(exception.Unavailable):
                glance.ImageApi.of_service().find("x")

    def test_snapshot_of_unreadable_property_makes_image_unacceptable(self):
        for value in (
            "x",
            "[1]",
            "1",
            "[" * 9999,
            '[{"source_type": "snapshot", "boot_index": 0}]',
        ):
            image = glance.Image.parse({**_BODY, "block_device_mapping": value})
            with (
                self.subTest(value[:9]),
                self.assertRaisesRegex(exception.ImageUnacceptable, "block_device_mapping"),
            ):
                image.find_snapshot()

    def test_images_are_configured_by_credentials(self):
        self.assertFalse(glance.is_configured())
        with self.assertRaisesRegex(exception.BadRequest, "has no images"):
            glance.ImageApi.of_service()
        conf_fixture.override(self, "auth_type", "none", group="glance")
        self.assertTrue(glance.is_configured())


class RequestTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.fake = fake_glance.use(self)

    def test_url_may_have_version(self):
        for ending in ("", "/", "/v2", "/v2/"):
            conf_fixture.override(
                self, "endpoint_override", f"{self.fake.url}{ending}", group="glance"
            )
            self.assertEqual(self.fake.url, glance.ImageApi.of_service().url)

    def test_caller_is_asked_for_by_own_token(self):
        image = self.fake.add(b"data", name="Debian")
        api = glance.ImageApi.of_caller("secret", "p")
        self.assertEqual(image, api.get(image).id)
        self.assertEqual([image], [found.id for found in api.find("Debian")])
        self.assertEqual({"secret"}, {token for _method, _path, token in self.fake.requests})

    def test_caller_without_token_sees_own_images_and_those_for_all(self):
        own, other = {"owner": "p", "name": "own"}, {"owner": "q", "name": "other"}
        seen = [self.fake.add(b"x", **own)]
        seen += [self.fake.add(b"x", **other, visibility=it) for it in ("public", "community")]
        hidden = [self.fake.add(b"x", **other, visibility=it) for it in ("private", "shared")]
        hidden.append(self.fake.add(b"x", owner=None))
        api = glance.ImageApi.of_caller(None, "p")
        self.assertEqual(seen, [api.get(image).id for image in seen])
        for image in hidden:
            with self.assertRaises(exception.ImageNotFound):
                api.get(image)
        self.assertEqual(seen[:1], [image.id for image in api.find("own")])
        self.assertEqual(seen[1:2], [image.id for image in api.find("other")])
        with self.assertRaises(exception.ImageNotFound):
            glance.ImageApi.of_caller(None, "").get(seen[0])

    def test_administrator_without_token_sees_all_images(self):
        images = [self.fake.add(b"x", owner=owner, name="x") for owner in ("p", "q")]
        api = glance.ImageApi.of_caller(None, None)
        self.assertEqual(images, [api.get(image).id for image in images])
        self.assertEqual(images, [image.id for image in api.find("x")])

    def test_name_is_ambiguous_with_one_own_and_one_public_image(self):
        for fields in ({"owner": "p"}, {"visibility": "public"}, {"owner": "q"}):
            self.fake.add(b"x", name="x", **fields)
        self.assertEqual(2, len(glance.ImageApi.of_caller(None, "p").find("x")))

    def test_refused_owner_of_new_image_names_the_role(self):
        self.fake.refuse_create = (403, b"<b>You are not permitted.</b>")
        api = glance.ImageApi.of_caller(None, "p")
        with self.assertRaisesRegex(exception.Forbidden, "of project p: You .* role admin"):
            api.create("i", {"owner": "p"})

    def test_id_cannot_leave_its_path(self):
        with self.assertRaises(exception.ImageNotFound):
            glance.ImageApi.of_service().get("../images?name=x")
        self.assertEqual("/v2/images/..%2Fimages%3Fname%3Dx", self.fake.requests[-1][1])

    def test_data_comes_in_chunks(self):
        data = bytes(range(256)) * 10_000
        image = self.fake.add(data)
        with glance.ImageApi.of_service().download(image) as chunks:
            received = list(chunks)
        self.assertEqual(data, b"".join(received))
        self.assertLessEqual(max(map(len, received)), glance.CHUNK)

    def read_slowly(self, size):
        """Read an image of which a byte comes each 0.1 seconds, and yield its chunks."""
        self.enterContext(mock.patch.object(fake_glance, "_PIECE", 1))
        self.fake.before_piece = lambda _offset: self.fake.over.wait(0.1)  # That makes it slow.
        self.addCleanup(self.fake.over.set)
        with glance.ImageApi.of_service().download(self.fake.add(b"x" * size)) as chunks:
            yield from chunks

    def test_slow_data_comes_each_second(self):
        received = list(self.read_slowly(13))
        self.assertEqual(13, sum(map(len, received)))
        self.assertGreater(len(received), 1)

    def test_data_that_is_too_slow_ends_with_reason(self):
        conf_fixture.override(self, "read_timeout", 0.5, group="glance")  # the subject
        received = []
        with self.assertRaisesRegex(exception.ImageServiceUnavailable, "less than 64 KiB"):
            received.extend(self.read_slowly(1000))
        self.assertLess(len(received), 3)

    def test_refusals_have_reasons(self):
        api = glance.ImageApi.of_service()
        for status, error, text in (
            (401, exception.Unavailable, "does not accept the token"),
            (403, exception.ImageNotFound, "i could not be found"),
            (404, exception.ImageNotFound, "i could not be found"),
            (500, exception.Unavailable, "with status 500"),
            (200, exception.Unavailable, "not one of the Image service"),
        ):
            self.fake.answer_all = (status, b'{"id": "i"}')
            with self.subTest(status), self.assertRaisesRegex(error, text):
                api.get("i")

    def test_service_that_is_away_is_unavailable(self):
        api = glance.ImageApi.of_service()
        self.fake.close()
        for request in (lambda: api.get("i"), lambda: api.create("i", {})):
            with self.assertRaisesRegex(exception.Unavailable, "cannot be reached") as caught:
                request()
            self.assertIs(exception.ImageServiceUnavailable, type(caught.exception))

    def test_image_that_may_have_been_made_is_a_request_without_answer(self):
        api = glance.ImageApi.of_service()
        for status, error in (
            (502, exception.ImageRequestUnanswered),
            (504, exception.ImageRequestUnanswered),
            (503, exception.ImageServiceUnavailable),
        ):
            self.fake.answer_all = (status, b"")
            with self.subTest(status), self.assertRaises(error) as caught:
                api.create("i", {})
            self.assertIs(error, type(caught.exception))
        self.fake.answer_all = None
        self.addCleanup(self.fake.over.set)
        conf_fixture.override(self, "read_timeout", 0.2, group="glance")  # the subject
        wait = mock.Mock(side_effect=lambda *_: self.fake.over.wait(TIMEOUT))
        with (
            mock.patch.object(self.fake, "_create", wait),
            self.assertRaises(exception.ImageRequestUnanswered),
        ):
            api.create("i", {})

    def test_refused_deletion_is_not_an_absence(self):
        image, api = self.fake.add(b"", status="queued"), glance.ImageApi.of_service()
        for status, error in (
            (403, exception.Forbidden),
            (409, exception.Conflict),
            (500, exception.Unavailable),
        ):
            self.fake.answer_all = (status, b"no")
            with self.subTest(status), self.assertRaises(error):
                api.delete(image)

    def test_only_image_without_data_is_deleted(self):
        api = glance.ImageApi.of_service()
        complete, empty = self.fake.add(b"data"), self.fake.add(b"", status="queued")
        outcomes = [api.delete_without_data(image) for image in (complete, empty, empty)]
        self.assertEqual([False, True, True], outcomes)
        self.assertEqual([complete], list(self.fake.images))
