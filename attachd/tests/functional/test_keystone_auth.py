# SPDX-License-Identifier: Apache-2.0
"""Tests of the API behind a real Keystone: tokens, roles, and outages of Keystone."""

import socket
import threading
import time
from typing import Any
import unittest
from unittest import mock

from keystoneauth1 import session
from keystoneauth1.identity import v3

from attachd.context import RequestContext
from attachd.tests.fixtures import db_rows, keystone_api, keystone_fixture
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

# What has to be done in this time is done again where it took longer.
TOKEN_SECONDS = 20


class Case(unittest.TestCase):
    options: dict[str, Any] = {}

    def setUp(self):
        super().setUp()
        self.api = keystone_api.use(self, **self.options)
        self.keystone = self.api.keystone
        self.alice = self.keystone.user("alice", "member")
        self.token = self.keystone.token(self.alice)

    def request(self, method="GET", path="/volumes", body=None, token=None, **more):
        token = self.token if token is None else token
        return self.api.request(method, path, body, token=token, **more)

    def assert_refused(self, answer):
        self.assertEqual(401, answer.status, answer.raw)
        self.assertEqual(f'Keystone uri="{self.keystone.url}"', answer.headers["www-authenticate"])
        self.assertRegex(answer.headers["x-openstack-request-id"], "^req-")
        self.assertNotIn("x-compute-request-id", answer.headers)
        (content,) = answer.body.values()
        self.assertEqual(["error"], list(answer.body))
        self.assertEqual((401, "Unauthorized"), (content["code"], content["title"]))


@full_only("keystone")
class DiscoveryTest(Case):
    def test_version_document_is_public_and_v3_requires_a_token(self):
        self.assertEqual(300, self.request(path="//", token="").status)
        for path in ("//v3", "//v3/", "/volumes", "/unknown", "/..", f"/{self.alice.project_id}"):
            with self.subTest(path):
                self.assert_refused(self.request(path=path, token=""))
        self.assertEqual(302, self.request(path="//v3").status)
        self.assertEqual(200, self.request(path="//v3/").status)
        self.assertEqual(404, self.request(path="/unknown").status)

    def test_health_check_is_public(self):
        self.assertEqual(200, self.request(path="//healthcheck", token="").status)

    def test_path_spelling_cannot_bypass_authentication(self):
        for path in (
            "///v3/volumes",
            "//./v3/volumes",
            "//V3/volumes",
            "//v3%2fvolumes",
            "//%763/volumes",
        ):
            with self.subTest(path):
                self.assertIn(self.request(path=path, token="").status, {401, 404})


class TokenTest(Case):
    def test_invalid_token_returns_401(self):
        expired_form = self.token[:-4] + "AAAA"
        for said in ("", "nonsense", expired_form, "tok\xe9n", "a b", "x" * 20000):
            with self.subTest(said[:20]):
                self.assert_refused(self.request(token=said))

    def test_url_of_another_project_returns_400(self):
        others = self.keystone.project()
        for token in (self.token, self.keystone.token(self.keystone.admin)):
            answer = self.request(path=f"/{others}/volumes", token=token)
            self.assertEqual((400, "Malformed request url"), (answer.status, answer.fault))
        self.assertEqual(200, self.request(path=f"/{self.alice.project_id}/volumes").status)
        self.assertEqual(200, self.request().status)

    def test_volume_gets_user_and_project_of_the_token(self):
        made = self.request("POST", "/volumes", {"volume": {"size": 1}})
        self.assertEqual(202, made.status, made.raw)
        path = f"/volumes/{made.body['volume']['id']}"
        shown = self.request(path=path).body["volume"]
        self.assertEqual(self.alice.id, shown["user_id"])
        self.assertEqual(self.alice.project_id, shown["os-vol-tenant-attr:tenant_id"])

    def test_token_roles_decide_what_is_allowed(self):
        reader = self.keystone.token(self.keystone.user("rita", "reader"))
        no_role = self.keystone.token(self.keystone.user("no-role", "auditor"))
        admin = self.keystone.token(self.keystone.admin)
        wanted = {"volume": {"size": 1}}
        for token, reads, writes, rules in (
            (no_role, 403, 403, 403),
            (reader, 200, 403, 403),
            (self.token, 200, 202, 403),
            (admin, 200, 202, 200),
        ):
            self.assertEqual(reads, self.request(token=token).status)
            self.assertEqual(writes, self.request("POST", body=wanted, token=token).status)
            self.assertEqual(rules, self.request(path="/os-services", token=token).status)

    def test_application_credential_acts_as_its_user(self):
        for roles, expected in (([{"name": "reader"}], 403), ([{"name": "member"}], 202)):
            made = self.keystone.application_credential(self.alice, roles=roles)
            login = v3.ApplicationCredential(
                self.keystone.url,
                application_credential_id=made["id"],
                application_credential_secret=made["secret"],
            )
            token = login.get_token(session.Session())
            self.assertEqual(200, self.request(token=token).status)
            answer = self.request("POST", body={"volume": {"size": 1}}, token=token)
            self.assertEqual(expected, answer.status, answer.raw)

    def test_application_credential_access_rules_are_enforced(self):
        self.keystone.endpoint("block-storage", "http://127.0.0.1:1/v3")
        rule = {"service": "block-storage", "method": "GET", "path": "/v3/volumes"}
        made = self.keystone.application_credential(self.alice, access_rules=[rule])
        login = v3.ApplicationCredential(
            self.keystone.url,
            application_credential_id=made["id"],
            application_credential_secret=made["secret"],
        )
        token = login.get_token(session.Session())
        self.assertEqual(200, self.request(token=token).status)
        self.assert_refused(self.request(path="/attachments", token=token))
        self.assert_refused(self.request("POST", body={"volume": {"size": 1}}, token=token))

    def test_token_without_project_scope_opens_no_project(self):
        admin = self.keystone.admin
        self.keystone.rest.put(
            f"/domains/default/users/{admin.id}/roles/{self.keystone._role('admin')}"
        )
        scopes = {
            "system": {"system_scope": "all"},
            "domain": {"domain_id": keystone_fixture.DOMAIN},
            "none": {"unscoped": True},
        }
        for name, scope in scopes.items():
            token = self.keystone.token(admin, **scope)
            with self.subTest(name):
                self.assertEqual(200, self.request(path="//v3/", token=token).status)
                for method, path, body in (
                    ("GET", "/volumes", None),
                    ("POST", "/volumes", {"volume": {"size": 1}}),
                    ("GET", "/attachments/detail", None),
                ):
                    answer = self.request(method, path, body, token=token)
                    self.assertEqual(403, answer.status, answer.raw)
                for path in ("/os-services", "/types", "/limits", "/extensions"):
                    answer = self.request(path=path, token=token)
                    self.assertIn(answer.status, {200, 403}, answer.raw)
                answer = self.request(path=f"/{admin.project_id}/volumes", token=token)
                self.assertEqual(400, answer.status)


@full_only("keystone")
class RevokedTest(Case):
    options = {"token_cache_time": -1}

    def test_revoked_token_without_cache_is_refused_at_once(self):
        self.assertEqual(200, self.request().status)
        self.keystone.revoke(self.token)
        self.assert_refused(self.request())

    def test_disabled_user_is_refused(self):
        self.keystone.rest.patch(f"/users/{self.alice.id}", json={"user": {"enabled": False}})
        self.assert_refused(self.request())


@full_only("keystone")
class ExpiryTest(unittest.TestCase):
    def test_expired_token_is_refused_without_service_token(self):
        own = keystone_fixture.Keystone(self, token_seconds=TOKEN_SECONDS)
        api = keystone_api.use(self, own)
        nova = own.user("nova", "service", project="service")
        alice = own.user("alice", "member")
        fresh = self.in_time(lambda: self.ask_with(api, own.token(alice)))
        self.assertEqual(200, fresh[1].status)
        token = fresh[0]
        wait_until(lambda: api.request("GET", "/volumes", token=token).status == 401)
        service = self.in_time(lambda: self.ask_with(api, token, x_service_token=own.token(nova)))
        self.assertEqual(200, service[1].status, service[1].raw)

    def ask_with(self, api, token, **headers):
        return token, api.request("GET", "/volumes", token=token, **headers)

    def in_time(self, call):
        """Call until it takes less time than a new token has."""

        def called():
            started_at = time.monotonic()
            result = call()
            return result if time.monotonic() < started_at + TOKEN_SECONDS - 1 else None

        return wait_until(called)


@full_only("keystone")
class ServiceTokenTest(Case):
    def setUp(self):
        super().setUp()
        self.nova = self.keystone.user("nova", "service", project="service")
        self.seen = []
        real = RequestContext.__init__

        def watched(context, *args, **kwargs):
            real(context, *args, **kwargs)
            self.seen.append(context)

        self.enterContext(mock.patch.object(RequestContext, "__init__", watched))

    def test_service_token_adds_service_roles(self):
        answer = self.request(x_service_token=self.keystone.token(self.nova))
        self.assertEqual(200, answer.status)
        context = self.seen[0]
        self.assertEqual(self.alice.id, context.user_id)
        self.assertEqual(self.alice.project_id, context.project_id)
        self.assertEqual(self.nova.id, context.service_user_id)
        self.assertEqual(self.nova.project_id, context.service_project_id)
        self.assertIn("service", context.service_roles)
        self.assertNotIn("service", context.roles)

    def test_attachments_of_service_are_stored_as_such(self):
        service = {"x_service_token": self.keystone.token(self.nova)}
        for headers, expected in ((service, True), ({}, None)):
            reserved, initialized = (
                db_rows.add_volume(project_id=self.alice.project_id)["id"] for _ in range(2)
            )
            body = {"attachment": {"volume_uuid": reserved}}
            answer = self.request("POST", "/attachments", body, **headers)
            self.assertEqual(200, answer.status, answer.raw)
            body = {"os-initialize_connection": {"connector": {"host": "node-1"}}}
            path = f"/volumes/{initialized}/action"
            answer = self.request("POST", path, body, **headers)
            self.assertEqual(200, answer.status, answer.raw)
            for volume_id in (reserved, initialized):
                (row,) = db_rows.list_attachments(volume_id)
                self.assertIs(expected, row["by_service"])

    def test_missing_service_token_gives_no_service_roles(self):
        self.request(x_service_roles="service", x_service_identity_status="Confirmed")
        self.assertEqual([], self.seen[0].service_roles)

    def test_service_role_of_a_user_gives_no_service_roles(self):
        token = self.keystone.token(self.nova)
        self.assertEqual(403, self.request(token=token).status)
        self.assertIn("service", self.seen[0].roles)
        self.assertEqual([], self.seen[0].service_roles)

    def test_invalid_service_token_is_refused(self):
        for said in ("nonsense", self.token, self.keystone.token(self.keystone.admin)[:-2]):
            self.assert_refused(self.request(x_service_token=said))
        self.assertEqual([], self.seen)


@full_only("keystone")
class BrokenKeystoneTest(unittest.TestCase):
    """Each of these has a Keystone of its own, or what is none."""

    def listen(self, answer=None):
        """Take connections and answer with the same bytes, or never."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        held = []

        def serve():
            while True:
                try:
                    connection, _address = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/v3"

    def assert_unavailable(self, api):
        answer = api.request("GET", "/volumes", token="anything")
        self.assertEqual(503, answer.status, answer.raw)
        self.assertRegex(answer.fault, "^Keystone cannot validate the token .* Try again later")
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        self.assertEqual("application/json", answer.headers["content-type"])
        self.assertIn("x-openstack-request-id", answer.headers)
        self.assertEqual(300, api.request("GET", "//", token="").status)

    def test_keystone_that_refuses_connections_returns_503(self):
        # A port that is bound, and refuses connections.
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}/v3"
            self.assert_unavailable(keystone_api.use(self, auth_url=url))

    def test_keystone_that_never_answers_returns_503(self):
        # However long: it never answers.
        api = keystone_api.use(self, auth_url=self.listen(), http_connect_timeout=1)
        self.assert_unavailable(api)

    def test_keystone_that_returns_html_returns_503(self):
        page = b"<html>hello</html>"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
        url = self.listen(head % len(page) + page)
        self.assert_unavailable(keystone_api.use(self, auth_url=url))

    def test_keystone_that_is_no_http_server_returns_503(self):
        url = self.listen(b"SSH-2.0\r\n")
        self.assert_unavailable(keystone_api.use(self, auth_url=url))

    def test_keystone_with_internal_error_returns_503(self):
        wrong = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
        self.assert_unavailable(keystone_api.use(self, auth_url=self.listen(wrong)))

    def test_keystone_that_rejects_the_service_user_returns_503(self):
        self.assert_unavailable(keystone_api.use(self, password="wrong"))

    def test_keystone_outage_ends_without_restart(self):
        own = keystone_fixture.Keystone(self)
        api = keystone_api.use(self, own)
        alice = own.user("alice", "member")
        known, unknown = own.token(alice), own.token(alice)
        self.assertEqual(200, api.request("GET", "/volumes", token=known).status)
        own.process.kill()
        self.assertEqual(200, api.request("GET", "/volumes", token=known).status)
        self.assert_unavailable(api)
        self.assertEqual(503, api.request("GET", "/volumes", token=unknown).status)
        self.assertEqual(401, api.request("GET", "/volumes", token="").status)
