# SPDX-License-Identifier: Apache-2.0
"""HEAD, OPTIONS, trailing slashes, and long values of query parameters."""

import urllib.parse

from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase


class MethodsTest(ApiCase):
    def test_head_is_answered_as_get_without_body(self):
        volume = db_rows.add_volume()["id"]
        for path in ("/volumes", f"/volumes/{volume}", f"/volumes/{db_rows.models.new_id()}"):
            with self.subTest(path):
                shown = self.api.request("GET", path)
                answer = self.api.request("HEAD", path)
                self.assertEqual((shown.status, b""), (answer.status, answer.raw))
                for name in ("content-type", "content-length", "openstack-api-version"):
                    self.assertEqual(shown.headers[name], answer.headers[name])

    def test_head_of_url_without_get_returns_404(self):
        self.expect(404, "HEAD", f"/volumes/{db_rows.models.new_id()}/action")

    def test_options_lists_methods_of_url(self):
        for path, methods in (
            ("/volumes", "GET, POST, HEAD, OPTIONS"),
            (f"/{wsgi_api.PROJECT}/volumes", "GET, POST, HEAD, OPTIONS"),
            ("/volumes/1/action", "POST, OPTIONS"),
            ("/attachments/1", "GET, PUT, DELETE, HEAD, OPTIONS"),
        ):
            with self.subTest(path):
                answer = self.expect(200, "OPTIONS", path, token="")
                self.assertEqual((methods, b""), (answer.headers["allow"], answer.raw))

    def test_options_of_unknown_url_returns_404(self):
        self.expect(404, "OPTIONS", "/novelties")
        self.expect(404, "OPTIONS", "/my-project/volumes")

    def test_wrong_method_returns_404_as_in_cinder(self):
        self.expect(404, "DELETE", "/volumes")


class TrailingSlashTest(ApiCase):
    def test_url_with_trailing_slash_is_the_same_resource(self):
        volume = db_rows.add_volume()["id"]
        for path in (f"/volumes/{volume}", f"/{wsgi_api.PROJECT}/volumes/detail"):
            with self.subTest(path):
                shown = self.expect(200, "GET", path)
                self.assertEqual(shown.body, self.expect(200, "GET", f"{path}/").body)
        self.expect(202, "DELETE", f"/volumes/{volume}/")

    def test_collection_with_trailing_slash_returns_404_as_in_cinder(self):
        # Tempest: test_get_volume_without_passing_volume_id.
        for path in ("/volumes/", "/attachments/", "/snapshots/"):
            self.expect(404, "GET", path)

    def test_url_with_two_trailing_slashes_returns_404(self):
        self.expect(404, "GET", "/volumes//")


class LongValuesTest(ApiCase):
    def test_long_filter_returns_400_that_names_it(self):
        for path, name in (
            ("/volumes", "name~"),
            ("/volumes", "name"),
            ("/attachments", "attached_host~"),
            ("/types", "description"),
            ("/messages", "event_id"),
            ("/volumes", "sort"),
        ):
            with self.subTest(path, name=name):
                query = urllib.parse.urlencode({name: "%" * 20_000})
                answer = self.expect(400, "GET", f"{path}?{query}", token=wsgi_api.ADMIN)
                self.assertIn(f"attribute {name}. ", answer.fault)
                self.assertIn("longer than 1024 characters", answer.fault)

    def test_filter_of_largest_length_is_used(self):
        query = urllib.parse.urlencode({"name~": "%" * 1024})
        answer = self.expect(200, "GET", f"/volumes?{query}", token=wsgi_api.ADMIN)
        self.assertEqual([], answer.body["volumes"])

    def test_filter_by_many_metadata_is_used(self):
        metadata = {f"key{number}": "x" * 255 for number in range(32)}
        query = urllib.parse.urlencode({"metadata": repr(metadata)})
        self.assertEqual([], self.expect(200, "GET", f"/volumes?{query}").body["volumes"])
