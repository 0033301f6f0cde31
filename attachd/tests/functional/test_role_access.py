# SPDX-License-Identifier: Apache-2.0
"""Tests of every endpoint with every role: allowed roles succeed, others are refused.

A new endpoint needs nothing here if its rule has a usual default and, where its body matters, the
samples (test_api_samples) have a call of it.
"""

import dataclasses
import re
from unittest import mock

from attachd.api import app, endpoint, policy_rules, validation
from attachd.api import microversions as mv
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional import role_expectations, test_api_samples
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

OF_PROJECTS = frozenset({"volume_id", "attachment_id", "message_id", "target_project_id"})
"""The variable parts of paths that name what belongs to one project."""


class RulesTest(ApiCase):
    maxDiff = None

    def _context(self, token):
        user, project, roles = token.split(":")
        return RequestContext(
            user_id=user, project_id=project, roles=[word for word in roles.split(",") if word]
        )

    def test_policy_rules_allow_the_expected_roles(self):
        for rule in policy_rules.list_rules():
            with self.subTest(rule.name):
                expected = role_expectations.allowed_roles(rule.name)
                for project in (wsgi_api.PROJECT, role_expectations.OTHER_PROJECT):
                    target = {"project_id": project, "user_id": "other-user"}
                    found = {
                        name
                        for name, token in role_expectations.TOKENS_BY_ROLE.items()
                        if policy_rules.allows(self._context(token), rule.name, target)
                    }
                    own = project == wsgi_api.PROJECT or rule.check_str == policy_rules.ALLOW_ALL
                    wanted = expected if own else expected & role_expectations.IN_ALL_PROJECTS
                    self.assertEqual(wanted, found, f"in the project {project}")


class GatesTest(ApiCase):
    """Handlers are replaced, so that each endpoint can be called by each role."""

    def setUp(self):
        super().setUp()
        self.endpoints = endpoint.load()
        opened = [self._opened(item) for item in self.endpoints]
        with mock.patch.object(endpoint, "load", return_value=opened):
            self.api = wsgi_api.WsgiApi(self.api.backend, app.make_app())

    @staticmethod
    def _opened(item):
        body = None if item.action is None else validation.VersionedSchema({}, item.since)
        return dataclasses.replace(item, handler=lambda: None, arguments=(), body=body)

    def _ask(self, item, token):
        return self.api.request(
            item.method,
            re.sub(r"\{\w+\}", "x", item.path),
            {item.action: None} if item.action else None,
            token=token,
            version=mv.RequestedVersions(item.since, item.attachd_since).header(),
        )

    def test_endpoints_allow_expected_roles_and_name_the_rule_to_others(self):
        for item in self.endpoints:
            for name, token in role_expectations.TOKENS_BY_ROLE.items():
                with self.subTest(item.operation, persona=name):
                    answer = self._ask(item, token)
                    if name in role_expectations.allowed_roles(item.policy):
                        self.assertEqual((item.status, b""), (answer.status, answer.raw))
                    else:
                        self.assertEqual(403, answer.status)
                        self.assertIn(f" {item.policy} ", answer.fault)


class ExtraSpecsTest(ApiCase):
    """What a rule hides inside of answers, and not behind an endpoint."""

    SPECS = {"multiattach": "<is> True", "storage_protocol": "iSCSI"}

    def setUp(self):
        super().setUp()
        self.path = f"/types/{self.create_type('gold', self.SPECS)}"

    def test_extra_specs_are_shown_to_permitted_roles(self):
        may_look = role_expectations.allowed_roles("volume_extension:types_extra_specs:index")
        may_know = role_expectations.allowed_roles(
            "volume_extension:types_extra_specs:read_sensitive"
        )
        for name in may_look:
            expected = set(self.SPECS) if name in may_know else {"multiattach"}
            token = role_expectations.TOKENS_BY_ROLE[name]
            with self.subTest(name):
                one = self.api.request("GET", self.path, token=token).body["volume_type"]
                all_ = self.api.request("GET", "/types", token=token).body["volume_types"]
                specs = self.api.request("GET", f"{self.path}/extra_specs", token=token).body
                self.assertEqual(expected, set(one["extra_specs"]))
                self.assertIn(expected, [set(item["extra_specs"]) for item in all_])
                self.assertEqual(expected, set(specs["extra_specs"]))
                hidden = self.api.request(
                    "GET", f"{self.path}/extra_specs/storage_protocol", token=token
                )
                self.assertEqual(200 if name in may_know else 404, hidden.status)


_VERSION = mv.RequestedVersions(mv.LATEST, mv.ATTACHD_LATEST).header()


class StoryTest(ApiCase):
    """The calls of the samples, with all that is in them, from the least to the most trusted."""

    def setUp(self):
        super().setUp()
        self.routes = app.RouteTable(endpoint.load(), CONF.api.project_id_regex)
        self.seen = set()

    def test_sample_calls_succeed_for_the_least_permitted_role_only(self):
        for _sample in test_api_samples.generate_samples(self.api, self._ask):
            pass
        # Try what the samples do not have: deletions, for the most part.
        volume = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"])["id"]
        ids = {
            "volume_id": volume,
            "attachment_id": attachment,
            "target_project_id": wsgi_api.PROJECT,
        }
        before = self._at_rest()
        for call in endpoint.load():
            if call in self.seen or not OF_PROJECTS & set(call.variables):
                continue
            path = re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], "x"), call.path)
            body = {call.action: role_expectations.BODIES.get(call.action, {})}
            self._refused_to_strangers(call, path, body if call.action else None)
        self.assertEqual(before, (db_rows.list_volumes(), db_rows.list_attachments()))

    def _ask(self, api, step):
        if step.path.startswith("//"):
            return test_api_samples.sent(api, step)
        item = self._endpoint(step)
        self.seen.add(item)
        self._refused(step, item)
        allowed = [
            name
            for name in role_expectations.TOKENS_BY_ROLE
            if name in role_expectations.allowed_roles(item.policy)
        ]
        body = step.body or {}
        on_host = any("host" in (body.get(key) or {}) for key in ("attachment", "attach_set"))
        least = role_expectations.ATTACH_ON_HOST if on_host else allowed[-1]
        return test_api_samples.sent(
            api, step._replace(token=role_expectations.TOKENS_BY_ROLE[least])
        )

    def _endpoint(self, step):
        path = step.path.partition("?")[0]
        match = self.routes.find(step.method, path.split("/")[1:])
        action = next(iter(step.body)) if match.candidates[0].action else None
        return [candidate for candidate in match.candidates if candidate.action == action][-1]

    def _refused(self, step, item):
        for name in role_expectations.TOKENS_BY_ROLE.keys() - role_expectations.allowed_roles(
            item.policy
        ):
            with self.subTest(item.operation, persona=name):
                token = role_expectations.TOKENS_BY_ROLE[name]
                answer = self.api.request(
                    step.method, step.path, step.body, token=token, version=_VERSION
                )
                self.assertEqual(403, answer.status, answer.raw)
                self.assertIn(f" {item.policy} ", answer.fault)
        if OF_PROJECTS & set(item.variables):
            self._refused_to_strangers(item, step.path, step.body)

    def _refused_to_strangers(self, item, path, body):
        with self.subTest(item.operation, persona="stranger"):
            token = role_expectations.OTHER_PROJECT_MEMBER
            answer = self.api.request(item.method, path, body, token=token, version=_VERSION)
            # A 400: add a call to the samples, or a body to role_expectations.BODIES.
            self.assertIn(answer.status, {403, 404}, answer.raw)

    def _at_rest(self):
        """Return all rows, once nothing that was begun changes them any more."""
        wait_until(
            lambda: not any(row["owner"] for row in db_rows.list_volumes()), db_rows.list_volumes
        )
        return db_rows.list_volumes(), db_rows.list_attachments()
