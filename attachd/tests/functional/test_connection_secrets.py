# SPDX-License-Identifier: Apache-2.0
"""Tests of which callers get the secrets of a connection, for each call that has them."""

from unittest import mock

from attachd.api import policy_rules
from attachd.api.attachments.policy import CONNECTION_INFO_AGAIN as AGAIN
from attachd.tests.fixtures import conf_fixture, db_rows, lifetime, wsgi_api
from attachd.tests.functional.api_case import ApiCase

ISCSI = {
    "driver_volume_type": "iscsi",
    "data": {"target_lun": 1, "auth_username": "u", "auth_password": "pass-word"},
}
CONNECTOR = db_rows.CONNECTOR
SERVICE = f"nova:{wsgi_api.PROJECT}:service,reader"


class ConnectionSecretsTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(self.driver, "grant", return_value=ISCSI))
        volume = db_rows.add_volume(host=f"{self.api.backend.host}#pool")["id"]
        self.made = self.api.request(
            "POST", "/attachments", {"attachment": {"volume_uuid": volume, "connector": CONNECTOR}}
        )
        self.attachment = self.made.body["attachment"]["id"]

    def _connections(self, token):
        """Return what the calls that look answer of the connection."""
        one = self.api.request("GET", f"/attachments/{self.attachment}", token=token)
        all_ = self.api.request("GET", "/attachments/detail", token=token)
        return [
            one.body["attachment"]["connection_info"],
            all_.body["attachments"][0]["connection_info"],
        ]

    def test_connection_info_for_connecting_callers_has_secrets(self):
        self.assertEqual(
            "pass-word", self.made.body["attachment"]["connection_info"]["auth_password"]
        )
        for token in (wsgi_api.MEMBER, wsgi_api.ADMIN, SERVICE):
            for found in self._connections(token):
                self.assertEqual("pass-word", found["auth_password"], token)

    def test_connection_info_for_readers_has_no_secrets(self):
        for found in self._connections(wsgi_api.READER):
            self.assertEqual(("iscsi", 1, "u"), (
                found["driver_volume_type"], found["target_lun"], found["auth_username"]
            ))  # fmt: skip
            self.assertNotIn("auth_password", found)
        for path in (f"/attachments/{self.attachment}", "/attachments/detail"):
            answer = self.api.request("GET", path, token=wsgi_api.READER)
            self.assertNotIn(b"pass-word", answer.raw)

    def test_connection_info_for_other_callers_is_empty(self):
        answer = self.api.request(
            "GET", f"/attachments/{self.attachment}", token=wsgi_api.OTHER_PROJECT_MEMBER
        )
        self.assertEqual(404, answer.status)
        answer = self.api.request(
            "GET", "/attachments/detail", token=wsgi_api.OTHER_PROJECT_MEMBER
        )
        self.assertEqual([], answer.body["attachments"])

    def test_connection_info_of_repeated_connect_has_secrets(self):
        body = {"attachment": {"connector": CONNECTOR}}
        answer = self.api.request("PUT", f"/attachments/{self.attachment}", body)
        info = answer.body["attachment"]["connection_info"]
        self.assertEqual("pass-word", info["auth_password"])

    def test_connection_info_under_rule_again_is_shown_once(self):
        file = lifetime.temp_dir(self) / "policy.yaml"
        file.write_text(f'"{AGAIN}": "rule:service_api"\n', encoding="utf-8")
        conf_fixture.override(self, "policy_file", str(file), group="oslo_policy")
        policy_rules.reset()
        self.addCleanup(policy_rules.reset)
        for found in self._connections(wsgi_api.MEMBER):
            self.assertNotIn("auth_password", found)
        for found in self._connections(SERVICE):
            self.assertEqual("pass-word", found["auth_password"])
        body = {"attachment": {"connector": CONNECTOR}}
        answer = self.api.request("PUT", f"/attachments/{self.attachment}", body)
        self.assertNotIn("auth_password", answer.body["attachment"]["connection_info"])
        self.assertEqual(["pass-word", None], self.legacy_connections())

    def legacy_connections(self):
        """Connect a host twice with the older call; return the passwords."""
        volume = db_rows.add_volume(host=f"{self.api.backend.host}#pool")["id"]
        body = {"os-initialize_connection": {"connector": CONNECTOR}}
        answers = [
            self.api.request("POST", f"/volumes/{volume}/action", body) for _repeated in range(2)
        ]
        data = [answer.body["connection_info"]["data"] for answer in answers]
        return [item.get("auth_password") for item in data]
