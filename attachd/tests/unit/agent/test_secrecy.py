# SPDX-License-Identifier: Apache-2.0
"""Secrets of connections are not told."""

import unittest

from attachd.agent import secrecy


class HiddenTest(unittest.TestCase):
    """What is replaced, and what is not."""

    def test_secrets_become_stars_wherever_they_are(self):
        info = {
            "auth_password": "Hf8s-first",
            "discovery_auth_password": "Hf8s-first-longer",
            "keyring": "[client.x]\nkey = AQsecond==\n",
            "encryption": {"secret_uuid": "third-one"},
            "target_iqn": "iqn.x:v",
        }
        text = "no Hf8s-first, Hf8s-first-longer, AQsecond== third-one at iqn.x:v"
        self.assertEqual("no ***, ***, *** *** at iqn.x:v", secrecy.hidden(text, info))

    def test_a_command_line_of_iscsiadm_is_masked_without_knowing(self):
        text = "iscsiadm --op update -n node.session.auth.password -v unknown-one"
        self.assertNotIn("unknown-one", secrecy.hidden(text, {}))

    def test_other_text_stays(self):
        self.assertEqual("a b", secrecy.hidden("a b", {"auth_password": "a", "secret": None}))
