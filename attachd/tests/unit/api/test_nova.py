# SPDX-License-Identifier: Apache-2.0
"""Tests of the queries to Nova."""

from unittest import mock

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1.access import service_catalog

from attachd import exception
from attachd.api import nova
from attachd.context import RequestContext
from attachd.tests.fixtures import conf_fixture, fake_nova

SERVER = "11111111-2222-3333-4444-555555555555"
OTHER_SERVER = "22222222-2222-3333-4444-555555555555"
VOLUME = "33333333-2222-3333-4444-555555555555"
ATTACHMENT = "44444444-2222-3333-4444-555555555555"


def environ(*services):
    """Return an environ of keystonemiddleware; a service is (type, interface, region, URL)."""
    catalogue = [
        {
            "type": kind,
            "id": kind,
            "name": kind,
            "endpoints": [
                {"id": url, "interface": interface, "region_id": region, "region": region,
                 "url": url}
            ],
        }
        for kind, interface, region, url in services
    ]  # fmt: skip
    access = mock.Mock(service_catalog=service_catalog.ServiceCatalogV3(catalogue))
    return {"keystone.token_auth": mock.Mock(user=access)}


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.ctx = RequestContext(auth_token="a-token", project_id="p", overwrite=False)

    def set(self, **options):
        for name, value in options.items():
            conf_fixture.override(self, name, value, "nova")


class FindTest(Case):
    def find(self, *services):
        return nova.find_compute(self.ctx, environ(*services))

    def test_missing_catalogue_and_configuration_return_none(self):
        self.assertIsNone(nova.find_compute(self.ctx, {}))

    def test_catalogue_without_compute_returns_none(self):
        self.assertIsNone(self.find())
        self.assertIsNone(self.find(("block-storage", "public", "one", "http://b")))

    def test_catalogue_has_url_of_compute(self):
        found = self.find(("compute", "public", "one", "http://c/v2.1"))
        self.assertEqual("http://c/v2.1", found._plugin.endpoint)

    def test_region_and_interface_select_endpoint(self):
        self.set(region_name="two", interface="internal")
        found = self.find(
            ("compute", "public", "two", "http://no/v2.1"),
            ("compute", "internal", "one", "http://no/v2.1"),
            ("compute", "internal", "two", "http://yes/v2.1"),
        )
        self.assertEqual("http://yes/v2.1", found._plugin.endpoint)

    def test_compute_in_other_region_is_unavailable(self):
        self.set(region_name="three")
        with self.assertRaisesRegex(exception.Unavailable, "interface public, region_name three"):
            self.find(("compute", "public", "one", "http://c/v2.1"))

    def test_token_without_catalogue_is_unavailable(self):
        access = mock.Mock()
        access.has_service_catalog.return_value = False
        for user in (access, None):
            seen = {"keystone.token_auth": mock.Mock(user=user)}
            with self.assertRaisesRegex(exception.Unavailable, "token_auth_url in .nova."):
                nova.find_compute(self.ctx, seen)

    def test_token_without_catalogue_is_exchanged_if_configured(self):
        self.set(token_auth_url="http://identity/v3")
        found = nova.find_compute(self.ctx, {"keystone.token_auth": mock.Mock(user=None)})
        self.assertEqual("http://identity/v3", found._plugin.auth_url)

    def test_configured_endpoint_has_precedence(self):
        self.set(endpoint_override="http://mine/v2.1")
        found = self.find(("compute", "public", "one", "http://c/v2.1"))
        self.assertEqual("http://mine/v2.1", found._plugin.endpoint)


class VolumeUseTest(Case):
    def setUp(self):
        super().setUp()
        self.fake = fake_nova.FakeNova(self)
        self.set(endpoint_override=self.fake.url)

    def volume_use(self, server=SERVER):
        found = nova.find_compute(self.ctx, {})
        return found.volume_use(server, VOLUME)

    def assert_unavailable(self, says):
        with self.assertRaisesRegex(exception.Unavailable, says) as caught:
            self.volume_use()
        self.assertIn("Nothing has been changed", str(caught.exception))

    def assert_logged(self, logged, says):
        """Check that the log has more details than the response."""
        with self.assertLogs("attachd.api.nova", "WARNING") as logs:
            self.assert_unavailable(f"cannot be reached .{says}")
        self.assertIn(logged, logs.output[0])

    def test_volume_use_returns_attachment(self):
        self.fake.add_attachment(SERVER, VOLUME, ATTACHMENT)
        self.assertEqual(ATTACHMENT, self.volume_use().attachment_id)

    def test_volume_use_sends_one_request_with_callers_token(self):
        self.volume_use()
        ((path, headers),) = self.fake.requests
        self.assertEqual(f"/v2.1/servers/{SERVER}/os-volume_attachments/{VOLUME}", path)
        self.assertEqual("a-token", headers["x-auth-token"])
        self.assertEqual("compute 2.89", headers["openstack-api-version"])

    def test_volume_use_without_token_sends_none(self):
        self.ctx.auth_token = None
        self.volume_use()
        self.assertEqual("notused", self.fake.requests[0][1]["x-auth-token"])  # keystoneauth's own

    def test_volume_use_returns_reason_of_nova(self):
        self.assertRegex(self.volume_use().message, f"Instance {SERVER} could not be found")
        self.fake.add_server(SERVER)
        self.assertRegex(self.volume_use().message, "volume_id not found")

    def test_ids_are_quoted_in_path(self):
        self.assertIsNone(self.volume_use("../x?y=/").attachment_id)
        self.assertIn("/servers/..%2Fx%3Fy%3D%2F/os-volume", self.fake.requests[0][0])

    def test_404_of_other_server_is_unavailable(self):
        wrong = (
            b"",
            b"<html/>",
            b"[]",
            b"[" * 100_000,
            b'{"itemNotFound": 1}',
            b'{"message": "x"}',
        )
        for body in wrong:
            with self.subTest(body):
                self.fake.respond_with(404, body)
                self.assert_unavailable("404 is not from Compute")

    def test_200_of_other_server_is_unavailable(self):
        self.fake.respond_with(200, b'{"volumes": []}')
        self.assert_unavailable("200 is not from Compute")

    def test_other_statuses_are_unavailable(self):
        cases = [(401, "does not accept the token"), (406, "API version 2.89"), (500, "500"),
                 (503, "503"), (302, "302"), (418, "418")]  # fmt: skip
        for status, says in cases:
            with self.subTest(status):
                self.fake.respond_with(status)
                self.assert_unavailable(says)

    def test_denied_query_is_forbidden(self):
        self.fake.respond_with(403)
        with self.assertRaisesRegex(exception.Forbidden, "Compute does not answer this caller"):
            self.volume_use()

    def test_silent_server_times_out(self):
        self.fake.stop_responding()
        self.set(read_timeout=0.3)  # the server never answers
        self.assert_unavailable("longer to answer")

    def test_unreachable_server_is_unavailable(self):
        self.fake.close()
        self.assert_logged(self.fake.url, "ConnectFailure")

    def test_missing_certificate_is_unavailable(self):
        self.set(endpoint_override=self.fake.url.replace("http", "https"), cafile="/nowhere")
        self.assert_logged("/nowhere", "OSError")

    def test_server_without_tls_is_unavailable(self):
        self.set(endpoint_override=self.fake.url.replace("http", "https"))
        self.assert_logged("SSL", "SSLError")

    def test_failed_token_exchange_is_unavailable(self):
        refused = auth_exceptions.Unauthorized()
        self.set(endpoint_override=None, token_auth_url="http://identity.example/v3")
        found = nova.find_compute(self.ctx, {"keystone.token_auth": mock.Mock()})
        with (
            mock.patch.object(found._plugin, "get_auth_ref", side_effect=refused),
            self.assertRaisesRegex(exception.Unavailable, "Identity does not accept the token"),
        ):
            found.volume_use(SERVER, VOLUME)
