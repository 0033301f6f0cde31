# SPDX-License-Identifier: Apache-2.0
"""Tests of HTTP basic authentication."""

import base64
from pathlib import Path
import tempfile
import unittest

import bcrypt

from attachd import exception
from attachd.api import http_basic
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture, wsgi_api


def encoded(name="alice", password="öffne dich"):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.users = Path(folder.name, "htpasswd")
        roles = Path(folder.name, "roles.yaml")
        conf_fixture.override(self, "http_basic_user_file", str(self.users), group="api")
        conf_fixture.override(self, "http_basic_roles_file", str(roles), group="api")
        made = bcrypt.hashpw("öffne dich".encode(), bcrypt.gensalt(4)).decode()
        self.users.write_text(f"alice:{made}\n")
        self.users.chmod(0o600)
        roles.write_text("alice: {project: aa, roles: [reader]}")
        self.contexts = []

    def inner(self, environ, start_response):
        self.assertNotIn("HTTP_AUTHORIZATION", environ)
        if environ["PATH_INFO"].startswith("/v3"):
            self.contexts.append(http_basic.identify(environ, None))
        start_response("204 No Content", [])
        return []

    def request(self, path="/volumes", **headers):
        return wsgi_api.WsgiApi(None, http_basic.wrap(self.inner)).request(
            "GET", path, token="", **headers
        )


class BasicAuthMiddlewareTest(Case):
    def test_correct_login_is_accepted(self):
        self.assertEqual(204, self.request(authorization=encoded()).status)
        (context,) = self.contexts
        self.assertEqual(("alice", "aa"), (context.user_id, context.project_id))
        self.assertEqual(["reader"], context.roles)
        self.assertEqual([], context.service_roles)
        self.assertIsNone(context.auth_token)
        self.assertFalse(context.is_admin)

    def test_failed_login_returns_challenge(self):
        for said in (encoded("bob"), encoded(password="x")):
            with self.subTest(said), self.assertLogs("attachd.api.http_basic", "WARNING") as logs:
                answer = self.request(authorization=said)
            self.assertEqual(401, answer.status)
            self.assertNotIn("öffne", logs.output[0])
            self.assertRegex(answer.headers["www-authenticate"], '^Basic realm="attachd"')
            self.assertEqual("application/json", answer.headers["content-type"])
            self.assertEqual({"code", "title", "message"}, set(answer.body["error"]))

    def test_malformed_credentials_are_refused(self):
        for said in (
            "", "Basic", "Basic ", "Basic !", "Bearer abc", "x y z", "Basic " + "ö" * 3,
            "Basic " + base64.b64encode(b"alice").decode(),
            "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        ):  # fmt: skip
            with self.subTest(said):
                self.assertEqual(401, self.request(authorization=said).status)

    def test_missing_credentials_are_refused_without_log(self):
        with self.assertNoLogs("attachd.api.http_basic"):
            self.assertEqual(401, self.request().status)
        self.assertEqual(401, self.request("//v3").status)
        self.assertEqual([], self.contexts)

    def test_headers_of_other_strategies_are_ignored(self):
        self.assertEqual(401, self.request(x_auth_token="alice:aa", x_user="alice").status)

    def test_discovery_is_public(self):
        self.assertEqual(204, self.request("//").status)

    def test_invalid_files_prevent_start(self):
        self.users.unlink()
        with self.assertRaises(exception.ConfigurationError):
            self.request()


class IdentifyTest(Case):
    def test_unseen_request_is_unauthorized(self):
        with self.assertRaises(exception.Unauthorized):
            http_basic.identify({"HTTP_AUTHORIZATION": encoded()}, None)

    def test_url_of_other_project_returns_400(self):
        account = http_basic.User("alice", "aa", ())
        with self.assertRaisesRegex(exception.BadRequest, "^Malformed request url$"):
            http_basic.identify({"attachd.account": account}, "bb")
