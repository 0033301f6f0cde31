# SPDX-License-Identifier: Apache-2.0
"""A test case of the API, whose manager and backend are in the test process."""

import unittest

from attachd.tests.fixtures import wsgi_api


class ApiCase(unittest.TestCase):
    """Tests of responses, and of what is stored and granted after them.

    :ivar api: the API, with SQLite
    :ivar driver: of the only backend; it records calls and can fail
    """

    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        self.driver = self.api.backend.driver

    def expect(self, status, method, path, body=None, **options):
        """Send a request and return the response, which must have a status.

        :param options: of WsgiApi.request()
        """
        response = self.api.request(method, path, body, **options)
        self.assertEqual(status, response.status, response.raw)
        return response

    def act(self, volume_id, name, body=None, status=202, **options):
        """Send an action of a volume and return the response, which must have a status."""
        return self.expect(status, "POST", f"/volumes/{volume_id}/action", {name: body}, **options)

    def create_attachment(self, volume_id, **fields):
        """Create an attachment and return its id."""
        body = {"attachment": {"volume_uuid": volume_id, **fields}}
        return self.expect(200, "POST", "/attachments", body).body["attachment"]["id"]

    def create_type(self, name, specs):
        """Create a volume type with extra specs and return its id."""
        body = {"volume_type": {"name": name, "extra_specs": specs}}
        response = self.expect(200, "POST", "/types", body, token=wsgi_api.ADMIN)
        return response.body["volume_type"]["id"]
