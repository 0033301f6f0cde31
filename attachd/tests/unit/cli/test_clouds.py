# SPDX-License-Identifier: Apache-2.0
"""How a cloud is named on the command line and in the environment."""

import argparse
import os
import unittest
from unittest import mock

from openstack import exceptions

from attachd.cli import clouds


class CloudTest(unittest.TestCase):
    def cloud(self, *words, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        patch = mock.patch.dict(os.environ, {**kept, **variables}, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        cloud = clouds.Cloud()
        self.addCleanup(cloud.close)
        parser = argparse.ArgumentParser(allow_abbrev=False)
        cloud.add_options(parser, words)
        cloud.options, self.rest = parser.parse_known_args(words)
        return cloud

    def test_the_lines_that_all_in_one_prints(self):
        cloud = self.cloud(OS_AUTH_TYPE="none", OS_ENDPOINT="http://127.0.0.1:8776/v3")
        session = cloud.sdk_connection.session
        self.assertEqual("http://127.0.0.1:8776/v3", session.auth.get_endpoint(session))

    def test_the_same_as_options(self):
        words = ("--os-auth-type", "none", "--os-endpoint", "http://127.0.0.1:8776/v3")
        session = self.cloud(*words).sdk_connection.session
        self.assertEqual("http://127.0.0.1:8776/v3", session.auth.get_endpoint(session))

    def test_a_user_with_a_password(self):
        cloud = self.cloud(
            OS_AUTH_URL="http://127.0.0.1:5000/v3",
            OS_USERNAME="anna",
            OS_PASSWORD="pw",
            OS_PROJECT_NAME="p",
            OS_USER_DOMAIN_NAME="Default",
            OS_PROJECT_DOMAIN_NAME="Default",
        )
        self.assertEqual("http://127.0.0.1:5000/v3", cloud.sdk_connection.session.auth.auth_url)

    def test_words_of_the_command_stay_as_they_are(self):
        words = ("local-detach", "v", "--attachment_id", "a_b")
        self.cloud(*words, OS_AUTH_TYPE="none", OS_ENDPOINT="http://127.0.0.1:8776/v3")
        self.assertEqual(list(words), self.rest)

    def test_too_little(self):
        with self.assertRaisesRegex(exceptions.ConfigException, "--os-cloud"):
            self.cloud().sdk_connection  # noqa: B018 (it connects when it is looked at)

    def test_an_unknown_kind_of_authentication(self):
        with self.assertRaisesRegex(exceptions.ConfigException, "telepathy"):
            self.cloud("--os-auth-type", "telepathy")
