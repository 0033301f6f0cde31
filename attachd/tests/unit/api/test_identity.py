# SPDX-License-Identifier: Apache-2.0
"""Tests of the common parts of authentication strategies."""

import unittest

from attachd import exception
from attachd.api import app, identity
from attachd.conf import api
from attachd.tests.fixtures import conf_fixture


class NeedsAuthTest(unittest.TestCase):
    def test_version_3_needs_authentication(self):
        for path in ("/v3", "/v3/", "/v3/volumes", "/v3/aa/volumes"):
            self.assertTrue(identity.needs_auth({"PATH_INFO": path}), path)

    def test_discovery_and_unknown_urls_need_no_authentication(self):
        for path in ("", "/", "/v2", "/v30", "/healthcheck"):
            self.assertFalse(identity.needs_auth({"PATH_INFO": path}), path)


class ContextTest(conf_fixture.DefaultConfCase):
    def test_url_has_project_of_caller_or_none(self):
        for url_project in ("aa", None):
            context = identity.context({}, url_project, project_id="aa")
            self.assertEqual("aa", context.project_id)

    def test_caller_without_project_has_no_project_url(self):
        self.assertIsNone(identity.context({}, None, project_id=None).project_id)
        with self.assertRaisesRegex(exception.BadRequest, "^Malformed request url$"):
            identity.context({}, "aa", project_id=None)

    def test_admin_role_makes_administrator(self):
        for roles, expected in ((["admin"], True), (["member"], False), ([], False)):
            context = identity.context({}, None, project_id="aa", roles=roles)
            self.assertEqual(expected, context.is_admin)


class StrategyTest(conf_fixture.DefaultConfCase):
    def test_missing_strategy_is_refused(self):
        with self.assertRaisesRegex(exception.ConfigurationError, "auth_strategy is not set"):
            app.load_strategy()

    def test_each_strategy_is_a_module(self):
        (option,) = (item for item in api.OPTIONS if item.dest == "auth_strategy")
        names = [name for name, _text in option.type.choices.items()]
        self.assertEqual(["noauth", "keystone", "http_basic"], names)
        for name in names:
            conf_fixture.override(self, "auth_strategy", name, group="api")
            strategy = app.load_strategy()
            self.assertEqual(f"attachd.api.{name}", strategy.__name__)
            self.assertTrue(callable(strategy.wrap) and callable(strategy.identify))
