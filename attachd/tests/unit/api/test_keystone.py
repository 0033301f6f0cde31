# SPDX-License-Identifier: Apache-2.0
"""Tests of Keystone authentication and of its failures.

Tokens are looked up in a table here; tests/functional/test_keystone_auth.py asks a real Keystone.
"""

import datetime
import unittest
from unittest import mock

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import fixture as tokens
from keystoneauth1 import loading
from keystonemiddleware import auth_token, fixture
from webob import exc

from attachd import exception
from attachd.api import app, keystone
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture, wsgi_api

URL = "http://keystone.example/v3"
OPTIONS = {
    "auth_type": "password",
    "auth_url": URL,
    "username": "attachd",
    "password": "secret",
    "www_authenticate_uri": URL,
    "memcached_servers": None,
}
PASSWORD = loading.get_auth_plugin_conf_options("password")


def token(*roles, **values):
    made = tokens.V3Token(**values)
    for role in roles:
        made.add_role(role)
    return made


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        CONF.register_opts(PASSWORD, group=keystone.GROUP)
        self.addCleanup(self.forget)
        self.configure(**OPTIONS)
        self.known = fixture.AuthTokenFixture()
        self.known.setUp()
        self.addCleanup(self.known.cleanUp)
        self.known.add_token(
            token("member", "reader", user_id="alice", project_id="aa"), token_id="alices"
        )
        self.known.add_token(
            token("service", user_id="nova", project_id="services"), token_id="novas"
        )
        self.contexts = []

    @staticmethod
    def forget():
        # One of these options is required, and other tests do not have it.
        CONF.reset()
        CONF.unregister_opts(PASSWORD, group=keystone.GROUP)

    def configure(self, **options):
        for name, value in options.items():
            CONF.set_override(name, value, group=keystone.GROUP)
            self.addCleanup(CONF.clear_override, name, group=keystone.GROUP)

    def inner(self, environ, start_response):
        if environ["PATH_INFO"].startswith("/v3"):
            self.contexts.append(keystone.identify(environ, None))
        start_response("204 No Content", [])
        return []

    def request(self, path="/volumes", token="alices", **headers):
        application = app.FaultMiddleware(keystone.wrap(self.inner))
        return wsgi_api.WsgiApi(None, application).request("GET", path, token=token, **headers)


class TokenTest(Case):
    def test_token_identifies_caller(self):
        self.assertEqual(204, self.request().status)
        (context,) = self.contexts
        self.assertEqual(("alice", "aa"), (context.user_id, context.project_id))
        self.assertEqual(["member", "reader"], context.roles)
        self.assertEqual("alices", context.auth_token)
        self.assertEqual([], context.service_roles)
        self.assertFalse(context.is_admin)
        self.assertIsNone(context.system_scope)

    def test_identity_headers_are_ignored(self):
        forged = {
            "x_user_id": "root", "x_roles": "admin", "x_project_id": "bb",
            "x_identity_status": "Confirmed", "openstack_system_scope": "all",
            "x_service_roles": "service", "x_service_identity_status": "Confirmed",
        }  # fmt: skip
        self.assertEqual(204, self.request(**forged).status)
        (context,) = self.contexts
        self.assertEqual(("alice", "aa"), (context.user_id, context.project_id))
        self.assertEqual(["member", "reader"], context.roles)
        self.assertEqual([], context.service_roles)
        self.assertIsNone(context.system_scope)
        self.assertEqual(401, self.request(token="", **forged).status)

    def test_missing_or_invalid_token_returns_401(self):
        for said in ("", "unknown", " ", "a b", "tok\xe9n", "\x0b", "x" * 9000):
            with self.subTest(said):
                answer = self.request(token=said)
                self.assertEqual(401, answer.status)
                self.assertEqual(f'Keystone uri="{URL}"', answer.headers["www-authenticate"])
                self.assertEqual({"code", "title", "message"}, set(answer.body["error"]))
                self.assertIn("x-openstack-request-id", answer.headers)
        self.assertEqual([], self.contexts)

    def test_expired_token_returns_401(self):
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
        self.known.add_token(token("member", project_id="aa", expires=past), token_id="old")
        self.assertEqual(401, self.request(token="old").status)

    def test_discovery_is_public(self):
        self.assertEqual(204, self.request("//", token="").status)
        self.assertEqual(401, self.request("//v3", token="").status)

    def test_system_token_has_no_project(self):
        made = token("admin", user_id="root")
        made.set_system_scope()
        self.known.add_token(made, token_id="systems")
        self.assertEqual(204, self.request(token="systems").status)
        (context,) = self.contexts
        self.assertEqual(("all", None), (context.system_scope, context.project_id))
        self.assertTrue(context.is_admin)

    def test_unseen_request_is_unauthorized(self):
        for environ in ({}, {"HTTP_X_IDENTITY_STATUS": "Confirmed", "HTTP_X_USER_ID": "root"}):
            with self.assertRaises(exception.Unauthorized):
                keystone.identify(environ, None)

    def test_configured_delay_auth_decision_has_no_effect(self):
        self.configure(delay_auth_decision=True)
        self.assertEqual(401, self.request(token="unknown").status)


class ServiceTokenTest(Case):
    def test_service_token_adds_service_to_user(self):
        self.assertEqual(204, self.request(x_service_token="novas").status)
        (context,) = self.contexts
        self.assertEqual("alice", context.user_id)
        self.assertEqual(["service"], context.service_roles)
        self.assertEqual("nova", context.service_user_id)
        self.assertEqual("services", context.service_project_id)

    def test_scope_of_service_token_is_not_that_of_user(self):
        made = token("service", user_id="nova")
        made.set_system_scope()
        self.known.add_token(made, token_id="systems")
        self.assertEqual(204, self.request(x_service_token="systems").status)
        (context,) = self.contexts
        self.assertIsNone(context.system_scope)

    def test_invalid_service_token_is_refused(self):
        for said in ("unknown", "alices", "no\xefn"):
            with self.subTest(said):
                self.assertEqual(401, self.request(x_service_token=said).status)

    def test_service_roles_are_configurable(self):
        self.configure(service_token_roles=["member"])
        self.assertEqual(204, self.request(x_service_token="alices").status)
        self.assertEqual(401, self.request(x_service_token="novas").status)

    def test_service_roles_are_required_by_default(self):
        self.configure(service_token_roles_required=False)
        self.assertEqual(204, self.request(x_service_token="alices").status)
        self.assertEqual(["member", "reader"], self.contexts[0].service_roles)


class BrokenKeystoneTest(Case):
    def test_failure_of_keystone_returns_503(self):
        for error in (
            exc.HTTPServiceUnavailable(),
            auth_exceptions.EndpointNotFound(),
            auth_exceptions.SSLError(),
            auth_exceptions.Unauthorized(),
            ValueError("no JSON"),
            AttributeError("nonsense"),
        ):
            with (
                self.subTest(repr(error)),
                mock.patch.object(auth_token.AuthProtocol, "fetch_token", side_effect=error),
            ):
                answer = self.request()
                self.assertEqual(503, answer.status)
                self.assertIn("Keystone", answer.body["serviceUnavailable"]["message"])
                self.assertGreater(int(answer.headers["retry-after"]), 0)

    def test_malformed_url_is_not_failure_of_keystone(self):
        error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why")
        with mock.patch.object(auth_token.AuthProtocol, "fetch_token", side_effect=error):
            self.assertEqual(400, self.request().status)


class ConfigurationTest(Case):
    def test_missing_auth_type_prevents_start(self):
        self.configure(auth_type=None)
        with self.assertRaisesRegex(exception.ConfigurationError, "has no auth_type"):
            keystone.wrap(self.inner)

    def test_invalid_configuration_prevents_start(self):
        for wrong in (
            {"auth_type": "nonsense"},
            {"auth_url": None},
            {"memcache_security_strategy": "ENCRYPT"},
        ):
            with self.subTest(wrong):
                self.configure(**wrong)
                with self.assertRaisesRegex(exception.ConfigurationError, "is invalid"):
                    keystone.wrap(self.inner)
                self.configure(**OPTIONS, memcache_security_strategy="None")

    def test_wait_for_keystone_is_limited(self):
        keystone.wrap(self.inner)
        self.assertEqual(5, CONF.keystone_authtoken.http_connect_timeout)
        self.assertEqual(1, CONF.keystone_authtoken.http_request_max_retries)

    def test_sample_has_our_defaults_and_password_options(self):
        ((group, options),) = keystone.list_opts()
        self.assertEqual("keystone_authtoken", group)
        named = {option.dest: option for option in options}
        for name, value in keystone.DEFAULT_OVERRIDES.items():
            self.assertEqual(value, named[name].default, name)
        self.assertLessEqual({"auth_url", "username", "password", "memcached_servers"}, set(named))
        self.assertTrue(named["service_token_roles_required"].default)
        self.assertEqual(len(named), len(options))


class TokenCacheTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.enterContext(mock.patch.object(keystone, "monotonic", lambda: self.now))

    def test_token_is_cached_for_its_time(self):
        cache = keystone.TokenCache(10)
        cache.set("a", b"1", time=10)
        self.now += 9.9
        self.assertEqual(b"1", cache.get("a"))
        self.now += 0.1
        self.assertIsNone(cache.get("a"))

    def test_token_without_time_is_not_cached(self):
        for seconds in (0, -1):
            cache = keystone.TokenCache(seconds)
            cache.set("a", b"1", time=seconds)
            self.assertIsNone(cache.get("a"))

    def test_oldest_token_is_evicted(self):
        self.enterContext(mock.patch.object(keystone, "MAX_TOKENS", 3))
        cache = keystone.TokenCache(10)
        for key in "abcd":
            cache.set(key, b"1", time=10)
        self.assertEqual(["b", "c", "d"], [key for key in "abcdef" if cache.get(key)])
