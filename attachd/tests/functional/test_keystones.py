# SPDX-License-Identifier: Apache-2.0
"""Tests of the Keystone fixture."""

import unittest

from keystoneauth1 import exceptions
import openstack
import requests

from attachd.tests.fixtures import keystone_fixture
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until


@full_only("keystone")
class KeystoneTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.keystone = keystone_fixture.shared(self)

    def look_at(self, token):
        answer = self.keystone.rest.get("/auth/tokens", headers={"X-Subject-Token": token})
        return answer.json()["token"]

    def test_keystone_fixture_is_shared_in_a_process(self):
        self.assertIs(self.keystone, keystone_fixture.shared(self))

    def test_keystone_fixture_user_has_roles_in_own_project(self):
        alice = self.keystone.user("alice", "member")
        bob = self.keystone.user("bob", "auditor")
        token = self.look_at(self.keystone.token(alice))
        self.assertEqual(alice.project_id, token["project"]["id"])
        self.assertEqual({"member", "reader"}, {role["name"] for role in token["roles"]})
        token = self.look_at(self.keystone.token(bob))
        self.assertEqual(["auditor"], [role["name"] for role in token["roles"]])
        self.assertNotEqual(alice.project_id, bob.project_id)

    def test_keystone_fixture_users_may_share_a_project(self):
        alice = self.keystone.user("alice", "reader", project="shared")
        bob = self.keystone.user("bob", "member", project="shared")
        self.assertEqual(alice.project_id, bob.project_id)
        self.keystone.grant(bob, "reader", project="admin")
        admins = self.keystone.admin.project_id
        token = self.look_at(self.keystone.token(bob, project_id=admins))
        self.assertEqual(admins, token["project"]["id"])

    def test_keystone_fixture_admin_has_system_role(self):
        token = self.look_at(self.keystone.token(self.keystone.admin, system_scope="all"))
        self.assertEqual({"all": True}, token["system"])
        operator = self.keystone.user("operator")
        self.keystone.grant_system(operator, "admin")
        token = self.look_at(self.keystone.token(operator, system_scope="all"))
        self.assertIn("admin", {role["name"] for role in token["roles"]})

    def test_keystone_fixture_catalogue_has_the_last_url(self):
        alice = self.keystone.user("alice", "member")
        for port in (1, 2):
            self.keystone.endpoint("block-storage", f"http://127.0.0.1:{port}/v3")
            cloud = openstack.connect(**alice.cloud)
            self.addCleanup(cloud.close)
            found = cloud.session.get_endpoint(service_type="block-storage")
            self.assertEqual(f"http://127.0.0.1:{port}/v3", found)
        self.keystone.forget_endpoint("block-storage")
        cloud = openstack.connect(**alice.cloud)
        self.addCleanup(cloud.close)
        with self.assertRaises(exceptions.EndpointNotFound):
            cloud.session.get_endpoint(service_type="block-storage")

    def test_keystone_fixture_revoked_token_is_invalid(self):
        token = self.keystone.token(self.keystone.user("alice", "member"))
        self.keystone.revoke(token)
        answer = self.keystone.rest.get(
            "/auth/tokens", headers={"X-Subject-Token": token}, raise_exc=False
        )
        self.assertEqual(404, answer.status_code)

    def test_keystone_fixture_application_credential_gets_tokens(self):
        alice = self.keystone.user("alice", "member")
        made = self.keystone.application_credential(alice)
        identity = {
            "methods": ["application_credential"],
            "application_credential": {"id": made["id"], "secret": made["secret"]},
        }
        answer = requests.post(
            f"{self.keystone.url}/auth/tokens",
            json={"auth": {"identity": identity}},
            timeout=TIMEOUT,
        )
        self.assertEqual(201, answer.status_code, answer.text)


@full_only("keystone")
class OwnKeystoneTest(unittest.TestCase):
    def test_keystone_fixture_in_mariadb_issues_short_tokens(self):
        # Long enough for what a slow machine does with the tokens of its administrator.
        keystone = keystone_fixture.Keystone(self, database="mariadb", token_seconds=20)
        token = keystone.token(keystone.user("alice", "member"))
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        wait_until(
            lambda: (
                requests.get(
                    f"{keystone.url}/auth/tokens", headers=headers, timeout=TIMEOUT
                ).status_code
                == 401
            ),
            interval=1,
        )
