# SPDX-License-Identifier: Apache-2.0
"""Selection of the cloud on the command line and in the environment."""

import argparse
import os
import unittest
from unittest import mock

from openstack import exceptions

from attachd.cli import clouds


class CloudTest(unittest.TestCase):
    def cloud(self, *words, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        self.enterContext(mock.patch.dict(os.environ, {**kept, **variables}, clear=True))
        cloud = clouds.Cloud()
        self.addCleanup(cloud.close)
        parser = argparse.ArgumentParser(allow_abbrev=False)
        cloud.add_options(parser, words)
        cloud.options, self.rest = parser.parse_known_args(words)
        return cloud

    def test_cloud_is_read_from_environment(self):
        cloud = self.cloud(OS_AUTH_TYPE="none", OS_ENDPOINT="http://127.0.0.1:8776/v3")
        session = cloud.sdk_connection.session
        self.assertEqual("http://127.0.0.1:8776/v3", session.auth.get_endpoint(session))

    def test_cloud_is_read_from_options(self):
        words = ("--os-auth-type", "none", "--os-endpoint", "http://127.0.0.1:8776/v3")
        session = self.cloud(*words).sdk_connection.session
        self.assertEqual("http://127.0.0.1:8776/v3", session.auth.get_endpoint(session))

    def test_cloud_with_password_uses_auth_url(self):
        cloud = self.cloud(
            OS_AUTH_URL="http://127.0.0.1:5000/v3",
            OS_USERNAME="anna",
            OS_PASSWORD="pw",
            OS_PROJECT_NAME="p",
            OS_USER_DOMAIN_NAME="Default",
            OS_PROJECT_DOMAIN_NAME="Default",
        )
        self.assertEqual("http://127.0.0.1:5000/v3", cloud.sdk_connection.session.auth.auth_url)

    def test_add_options_leaves_words_of_command(self):
        words = ("local-detach", "v", "--attachment_id", "a_b")
        self.cloud(*words, OS_AUTH_TYPE="none", OS_ENDPOINT="http://127.0.0.1:8776/v3")
        self.assertEqual(list(words), self.rest)

    def test_cloud_without_settings_names_option(self):
        with self.assertRaisesRegex(exceptions.ConfigException, "--os-cloud"):
            self.cloud().sdk_connection  # noqa: B018 (it connects when it is looked at)

    def test_unknown_auth_type_is_named(self):
        with self.assertRaisesRegex(exceptions.ConfigException, "telepathy"):
            self.cloud("--os-auth-type", "telepathy")
