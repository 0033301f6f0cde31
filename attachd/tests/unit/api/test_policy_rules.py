# SPDX-License-Identifier: Apache-2.0
"""Tests of rules, personas and their enforcement."""

import time
import unittest
from unittest import mock

from oslo_policy import policy as oslo_policy

from attachd import exception
from attachd.api import endpoint, policy_rules
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.tests.fixtures import lifetime

RULE = "volume:attachment_create"


def context(*roles, project="p", **more):
    found = RequestContext(user_id="u", project_id=project, roles=list(roles), **more)
    found.is_admin = policy_rules.is_admin(found)
    return found


def target(project="p"):
    return {"project_id": project, "user_id": "other-user"}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = lifetime.temp_dir(self) / "policy.yaml"
        CONF([], project="attachd", default_config_files=[])
        policy_rules.get_enforcer()  # registers the options
        CONF.set_override("policy_file", str(self.file), group="oslo_policy")
        self.addCleanup(CONF.clear_override, "policy_file", group="oslo_policy")
        policy_rules.reset()
        self.addCleanup(policy_rules.reset)


class PersonasTest(Case):
    def test_personas_have_expected_permissions(self):
        #           roles                 own    other project
        cases = {
            ("admin",): (True, True),
            ("member", "reader"): (True, False),
            ("member",): (True, False),
            ("reader",): (False, False),
            (): (False, False),
        }
        for roles, expected in cases.items():
            with self.subTest(roles):
                asked = context(*roles)
                found = tuple(policy_rules.allows(asked, RULE, target(p)) for p in ("p", "other"))
                self.assertEqual(expected, found)

    def test_reader_may_read(self):
        self.assertTrue(policy_rules.allows(context("reader"), "volume:attachment_get", target()))
        self.assertFalse(
            policy_rules.allows(context("reader"), "volume:attachment_get", target("x"))
        )

    def test_refusal_names_rule(self):
        with self.assertRaisesRegex(
            exception.Forbidden, f"^Policy doesn't allow {RULE} to be performed.$"
        ):
            policy_rules.authorize(context("reader"), RULE, target())

    def test_system_and_domain_tokens_are_forbidden(self):
        for scope in ({"system_scope": "all"}, {"domain_id": "d"}):
            with self.subTest(scope):
                self.assertFalse(policy_rules.allows(context("admin", **scope), RULE, target()))

    def test_unregistered_rule_raises(self):
        with self.assertRaises(oslo_policy.PolicyNotRegistered):
            policy_rules.allows(context("admin"), "volume:typo", target())

    def test_decisions_equal_those_of_oslo_policy(self):
        enforcer = policy_rules.get_enforcer()
        for roles in (("admin",), ("member",), ("reader",), ()):
            for rule in policy_rules.list_rules():
                for owner in ("p", "other"):
                    asked = context(*roles)
                    theirs = enforcer.authorize(rule.name, target(owner), asked)
                    with self.subTest(rule.name, roles=roles, owner=owner):
                        self.assertEqual(
                            bool(theirs), policy_rules.allows(asked, rule.name, target(owner))
                        )


class FilesTest(Case):
    def test_file_overrides_defaults(self):
        self.file.write_text(f"'{RULE}': 'role:guest'\n", encoding="utf-8")
        self.assertTrue(policy_rules.allows(context("guest"), RULE, target()))
        self.assertFalse(policy_rules.allows(context("member"), RULE, target()))

    def test_changed_file_takes_effect_soon(self):
        self.file.write_text("{}", encoding="utf-8")
        self.assertFalse(policy_rules.allows(context("guest"), RULE, target()))
        self.file.write_text(f"'{RULE}': 'role:guest'\n", encoding="utf-8")
        later = time.monotonic() + 2  # on the clock by which files are looked at
        with mock.patch.object(policy_rules.time, "monotonic", return_value=later):
            self.assertTrue(policy_rules.allows(context("guest"), RULE, target()))

    def _later(self, seconds=2.0):
        """Move the clock past the next check of the files."""
        now = getattr(self, "_now", time.monotonic()) + seconds
        self._now = now
        self.enterContext(mock.patch.object(policy_rules.time, "monotonic", return_value=now))

    def _guest_may(self):
        return policy_rules.allows(context("guest"), RULE, target())

    def test_invalid_file_changes_nothing_and_is_logged(self):
        self.file.write_text(f"'{RULE}': 'role:guest'\n", encoding="utf-8")
        self.assertTrue(self._guest_may())
        for text in ("[", f"'{RULE}': 'guest'", f"'{RULE}': 'rule:guests'", f"'{RULE}': 'x:y'"):
            self.file.write_text(text, encoding="utf-8")
            self._later()
            with self.assertLogs(policy_rules.LOG.logger, "ERROR") as logs:
                self.assertTrue(self._guest_may())
                self.assertTrue(self._guest_may())
            self.assertEqual(1, len(logs.output), logs.output)
            self.assertRegex(
                logs.output[0], f"{self.file} is invalid: .* previous rules stay in force"
            )

    def test_invalid_file_is_logged_again(self):
        self.assertFalse(self._guest_may())
        self.file.write_text("[", encoding="utf-8")
        for seconds, complaints in ((2, 1), (30, 0), (31, 1), (2, 0), (61, 1)):
            self._later(seconds)
            with self.assertLogs(policy_rules.LOG.logger, "INFO") as logs:
                policy_rules.LOG.info("-")
                self.assertFalse(self._guest_may())
            self.assertEqual(1 + complaints, len(logs.output), (seconds, logs.output))

    def test_corrected_file_takes_effect_soon(self):
        self.assertFalse(self._guest_may())
        self.file.write_text("[", encoding="utf-8")
        self._later()
        self.assertFalse(self._guest_may())
        self.file.write_text(f"'{RULE}': 'role:guest'\n", encoding="utf-8")
        self._later()
        self.assertTrue(self._guest_may())

    def test_removed_file_restores_defaults(self):
        self.file.write_text(f"'{RULE}': 'role:guest'\n", encoding="utf-8")
        self.assertTrue(self._guest_may())
        self.file.unlink()
        self._later()
        self.assertFalse(self._guest_may())
        self.assertTrue(policy_rules.allows(context("member"), RULE, target()))

    def test_invalid_file_prevents_start(self):
        self.file.write_text("[", encoding="utf-8")
        for _ in range(2):
            with self.assertRaisesRegex(exception.ConfigurationError, str(self.file)):
                policy_rules.load()
        self.file.write_text("{}", encoding="utf-8")
        policy_rules.load()

    def test_unused_rules_are_returned(self):
        self.file.write_text("'volume:typo': '@'\n'volume:get': '@'", encoding="utf-8")
        self.assertEqual(["volume:typo"], policy_rules.check_files())

    def test_files_are_not_checked_for_each_decision(self):
        asked = context("member")
        policy_rules.load()
        self._later(0.0)
        with mock.patch.object(policy_rules.policy_files, "state") as state:
            for _ in range(10):
                policy_rules.allows(asked, RULE, target())
        self.assertLessEqual(state.call_count, 1)

    def test_administrator_is_defined_by_rule(self):
        self.file.write_text("'context_is_admin': 'role:chief'\n", encoding="utf-8")
        self.assertTrue(context("chief").is_admin)
        self.assertFalse(context("admin").is_admin)


class CacheTest(Case):
    """Within one request decisions are cached."""

    def setUp(self):
        super().setUp()
        self.asked = context("member")

    def _decisions(self, *targets):
        with mock.patch.object(
            policy_rules, "_decide", side_effect=policy_rules._decide
        ) as decide:
            decisions = [policy_rules.allows(self.asked, RULE, target) for target in targets]
        return decisions, decide.call_count

    def test_decision_is_cached_for_each_target(self):
        found = self._decisions(target(), target("other"), target(), target("other"))
        self.assertEqual(([True, False, True, False], 2), found)

    def test_decisions_are_cached_by_rule_and_request(self):
        self.assertTrue(policy_rules.allows(self.asked, RULE, target()))
        self.assertFalse(policy_rules.allows(self.asked, "admin_api", target()))
        self.assertFalse(policy_rules.allows(context("reader"), RULE, target()))

    def test_is_admin_is_not_cached(self):
        asked = RequestContext(user_id="u", project_id="p", roles=["admin"])
        asked.is_admin = policy_rules.is_admin(asked)
        self.assertIsNone(asked.policy_cache)
        self.assertTrue(policy_rules.allows(asked, "context_is_admin", target()))

    def test_changed_rules_clear_cache(self):
        self.assertTrue(policy_rules.allows(self.asked, RULE, target()))
        self.file.write_text(f'"{RULE}": "!"\n')
        policy_rules.reset()
        self.assertEqual(([False, False], 1), self._decisions(target(), target()))


class RegisterTest(Case):
    """Endpoints and rules have the same operations."""

    maxDiff = None

    def setUp(self):
        super().setUp()
        self.endpoints = endpoint.load()
        self.rules = {rule.name: rule for rule in policy_rules.list_rules()}

    def _operations(self):
        for rule in self.rules.values():
            for operation in getattr(rule, "operations", ()):
                path = operation["path"].removeprefix("/v3/{project_id}")
                yield f"{operation['method']} {path}", rule.name

    def test_each_endpoint_is_operation_of_its_rule(self):
        documented = set(self._operations())
        enforced = {(item.operation, item.policy) for item in self.endpoints if item.policy}
        self.assertEqual(set(), enforced - documented)

    def test_each_operation_is_endpoint(self):
        known = {item.operation for item in self.endpoints}
        self.assertEqual(set(), {operation for operation, _ in self._operations()} - known)

    def test_each_endpoint_has_rule(self):
        free = [item.operation for item in self.endpoints if not item.policy]
        self.assertEqual([], free, "name a rule: policy.ALLOW_ALL is one as well")

    def test_each_rule_has_project_scope_and_description(self):
        for rule in self.rules.values():
            if isinstance(rule, oslo_policy.DocumentedRuleDefault):
                self.assertEqual(["project"], rule.scope_types, rule.name)
                self.assertRegex(rule.description, r"^[A-Z].*\.$", rule.name)
