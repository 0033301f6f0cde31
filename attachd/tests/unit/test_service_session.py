# SPDX-License-Identifier: Apache-2.0
"""Credentials and connections of the groups [nova] and [glance]."""

import os

from attachd import compute, exception, service_session
from attachd.images.glance import ImageApi
from attachd.tests.concurrency import run_at_once
from attachd.tests.fixtures import conf_fixture, fake_keystone


class ServiceSessionTest(conf_fixture.DefaultConfCase):
    def test_group_has_credentials_by_type_or_section(self):
        self.assertFalse(service_session.has_credentials("glance"))
        conf_fixture.override(self, "auth_section", "nova", group="glance")
        self.assertTrue(service_session.has_credentials("glance"))

    def test_group_without_type_is_refused_by_name(self):
        with self.assertRaisesRegex(exception.ConfigurationError, r"\[glance\] has no auth_type"):
            service_session.load_credentials("glance", "sees images")

    def test_section_of_another_group_is_read(self):
        conf_fixture.override(self, "auth_section", "nova", group="glance")
        conf_fixture.override(self, "auth_type", "none", group="nova")
        plugin = service_session.load_credentials("glance", "sees images")
        self.assertEqual("notused", plugin.get_token(None))

    def test_connection_has_options_of_its_group(self):
        conf_fixture.override(self, "region_name", "east", group="glance")
        connected = service_session.connect("glance", None, "image")
        self.assertEqual(("image", "east"), (connected.service_type, connected.region_name))


class LoginTest(conf_fixture.DefaultConfCase):
    """How often this service logs in to Keystone."""

    def setUp(self):
        super().setUp()
        self.keystone = fake_keystone.FakeKeystone(self)
        self.keystone.configure(self, "glance")

    @staticmethod
    def request():
        """Send a request with the token of this service and return the status."""
        api = ImageApi.of_service()
        return service_session.send(api._adapter, "glance", "GET", "/v2/images").status_code

    def test_requests_of_callers_cost_one_login(self):
        urls = {ImageApi.of_caller("secret", "p").url for _ in range(5)}
        self.assertEqual({self.keystone.url}, urls)
        self.assertEqual(["first"], self.keystone.logins)

    def test_threads_at_once_cost_one_login(self):
        self.assertEqual([200] * 5, run_at_once(*[self.request] * 5))
        self.assertEqual(["first"], self.keystone.logins)

    def test_events_of_compute_cost_one_login(self):
        self.keystone.configure(self, "nova")
        for _ in range(2):
            compute.get(compute.connect(compute.load_credentials()), "/servers")
        self.assertEqual(["first"], self.keystone.logins)

    def test_revoked_token_costs_one_login(self):
        self.request()
        self.keystone.valid.clear()
        self.assertEqual([200, 200], [self.request() for _ in range(2)])
        self.assertEqual(2, len(self.keystone.logins))

    def test_upload_with_revoked_token_succeeds_when_it_is_repeated(self):
        api = ImageApi.of_service()
        self.request()
        self.keystone.valid.clear()
        with self.assertRaises(exception.ImageServiceUnavailable):
            api.upload("i", iter([b"x"]), 1)
        api.upload("i", iter([b"x"]), 1)
        self.assertEqual(2, len(self.keystone.logins))

    def test_changed_password_is_used_at_once(self):
        self.request()
        conf_fixture.override(self, "password", "second", group="glance")
        self.request()
        self.assertEqual(["first", "second"], self.keystone.logins)

    def test_forked_process_has_a_plugin_of_its_own(self):
        inherited = service_session.load_credentials("glance", "sees images")
        with inherited._lock:  # A thread of the parent may log in at that moment.
            child = os.fork()
            if child == 0:
                os._exit(service_session.load_credentials("glance", "x") is inherited)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
