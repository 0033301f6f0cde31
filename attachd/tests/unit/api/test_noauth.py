# SPDX-License-Identifier: Apache-2.0
"""Tests of the strategy without authentication."""

from attachd import exception
from attachd.api import noauth
from attachd.tests.fixtures import conf_fixture


def identify(token=None, url_project=None, **environ):
    if token is not None:
        environ["HTTP_X_AUTH_TOKEN"] = token
    return noauth.identify(environ, url_project)


class IdentifyTest(conf_fixture.DefaultConfCase):
    def test_missing_token_takes_project_of_url(self):
        context = identify(url_project="aa")
        self.assertEqual("aa", context.project_id)
        self.assertEqual(["admin", "member", "reader"], context.roles)
        self.assertTrue(context.is_admin)

    def test_tokens_of_stock_clients_are_ignored(self):
        for token in ("", "notused", "fake-token"):
            with self.subTest(token):
                self.assertEqual("aa", identify(token, "aa").project_id)

    def test_missing_project_becomes_default_project(self):
        self.assertEqual("0" * 32, identify().project_id)

    def test_token_sets_user_and_project(self):
        context = identify("alice:demo")
        self.assertEqual(("alice", "demo"), (context.user_id, context.project_id))
        self.assertTrue(context.is_admin)

    def test_token_restricts_roles(self):
        context = identify("alice:demo:member,reader", "demo")
        self.assertEqual(["member", "reader"], context.roles)
        self.assertFalse(context.is_admin)

    def test_token_may_have_no_roles(self):
        self.assertEqual([], identify("alice:demo:").roles)

    def test_url_of_other_project_returns_400(self):
        with self.assertRaisesRegex(exception.BadRequest, "^Malformed request url$"):
            identify("alice:demo", "other")

    def test_malformed_token_is_unauthorized(self):
        for token in (":", "a:", ":b", "a:b:c:d", "a b:c", f"{'x' * 65}:p", "a:b\xe9"):
            with self.subTest(token), self.assertRaises(exception.Unauthorized):
                identify(token)

    def test_request_ids_are_kept(self):
        context = identify(
            **{"openstack.request_id": "req-1", "openstack.global_request_id": "req-2"}
        )
        self.assertEqual(("req-1", "req-2"), (context.request_id, context.global_request_id))
