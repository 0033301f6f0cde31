# SPDX-License-Identifier: Apache-2.0
"""The image that a request for a volume names."""

from attachd import exception
from attachd.api.volumes import image_lookup
from attachd.context import RequestContext
from attachd.tests.fixtures import conf_fixture, fake_glance


class RequestedImageTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.fake = fake_glance.use(self)
        self.image = self.fake.add(b"data", name="Debian")

    def find(self, **requested):
        return image_lookup.requested_image(RequestContext(auth_token="t"), requested)

    def test_request_without_image_asks_nothing(self):
        self.assertIsNone(self.find(imageRef=None))
        self.assertEqual([], self.fake.requests)

    def test_image_is_found_under_both_fields(self):
        self.assertEqual(self.image, self.find(imageRef=self.image).id)
        self.assertEqual(self.image, self.find(image_id="Debian").id)

    def test_name_that_is_an_id_is_found(self):
        name = "11111111-2222-4333-8444-555555555555"
        image = self.fake.add(b"data", name=name)
        self.assertEqual(image, self.find(imageRef=name).id)

    def test_second_source_is_refused(self):
        with self.assertRaises(exception.BadRequest):
            self.find(imageRef=self.image, source_volid="v")
