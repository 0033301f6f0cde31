# SPDX-License-Identifier: Apache-2.0
"""Credentials and connections of the groups [nova] and [glance]."""

from attachd import exception, service_session
from attachd.tests.fixtures import conf_fixture


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
