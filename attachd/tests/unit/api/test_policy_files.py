# SPDX-License-Identifier: Apache-2.0
"""Tests of the validation of policy files."""

import unittest

from oslo_policy import policy as oslo_policy

from attachd import exception
from attachd.api import policy_files, policy_rules
from attachd.conf import CONF
from attachd.tests.fixtures import lifetime

DEFAULTS = [
    oslo_policy.RuleDefault("admin", "role:admin"),
    oslo_policy.RuleDefault("eat", "rule:admin or user_id:%(user_id)s"),
]
KNOWN = {"user_id", "roles"}


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.file = self.folder / "policy.yaml"

    def check(self, text, *more):
        self.file.write_text(text, encoding="utf-8")
        return policy_files.check([self.file, *more], DEFAULTS, KNOWN)


class CheckTest(Case):
    def test_valid_rules_are_accepted(self):
        valid = [
            "",
            "{}",
            "# nothing",
            "eat: role:cook",
            "eat: ''",
            "eat: '@'",
            "eat: '!'",
            "eat: 'not role:guest and (rule:admin or !)'",
            "eat: 'roles:x or ''Member'':%(x)s or True:%(y)s or user_id.name:z'",
            "eat: 'http://example.org/'",
            "own: role:cook\neat: rule:own and rule:admin",
        ]
        for text in valid:
            with self.subTest(text):
                self.check(text)

    def test_each_mistake_is_named_with_its_file(self):
        invalid = {
            "eat: [": "it is not YAML: .* line 1",
            "eat: 'role:cook": "it is not YAML",
            "\x01": "it is not YAML",
            "- eat": "it is not a mapping",
            "eat": "it is not a mapping",
            "1: role:cook": "it is not a mapping",
            "eat:": "the rule eat is not a string but None",
            "eat: true": "not a string but True",
            "eat: {role: cook}": "not a string but",
            "eat: cook": "the rule eat cannot be parsed: 'cook'",
            "eat: role:cook or": "cannot be parsed",
            "eat: role:cook orr rule:admin": "cannot be parsed",
            "eat: (role:cook": "cannot be parsed",
            "eat: not": "cannot be parsed",
            "eat: 'role:cook or cook or !'": "cannot be parsed",
            "eat: rolle:cook": "the rule eat has an unknown check: 'rolle:cook'",
            "eat: not (role:cook and tenant:%(tenant)s)": "unknown check: 'tenant:",
            "eat: rule:cooks": "the rule eat refers to the unknown rule cooks",
            "eat: rule:eat": "refers to itself",
            "own: rule:eat\neat: role:x or not rule:own": "refers to itself",
        }
        for text, reason in invalid.items():
            with (
                self.subTest(text),
                self.assertRaisesRegex(
                    exception.ConfigurationError,
                    rf"^The policy file {self.file} is invalid: .*{reason}.*\.$",
                ),
            ):
                self.check(text)

    def test_unreadable_file_is_invalid(self):
        for path, reason in (
            (self.folder, "it cannot be read: Is a directory"),
            (self.folder / "gone", "it cannot be read: No such file"),
        ):
            with self.assertRaisesRegex(exception.ConfigurationError, reason):
                policy_files.check([path], DEFAULTS, KNOWN)
        self.file.write_bytes(b"eat: \xff")
        with self.assertRaisesRegex(exception.ConfigurationError, "it is not UTF-8"):
            policy_files.check([self.file], DEFAULTS, KNOWN)

    def test_later_file_is_named_for_mistake_in_earlier_one(self):
        other = self.folder / "other.yaml"
        other.write_text("eat: rule:none\n")
        with self.assertRaisesRegex(exception.ConfigurationError, f"file {other} is invalid"):
            self.check("eat: role:cook", other)

    def test_unused_rules_are_returned(self):
        text = "own: role:cook\neat: rule:own\nate: role:cook\ndrink: '@'\n"
        self.assertEqual(["ate", "drink"], self.check(text))

    def test_defaults_are_valid(self):
        text = "\n".join(
            f"'{rule.name}': '{rule.check_str}'" for rule in policy_rules.list_rules()
        )
        self.file.write_text(text)
        credentials = policy_rules._CREDENTIALS
        self.assertEqual(
            [], policy_files.check([self.file], policy_rules.list_rules(), credentials)
        )


class FindTest(Case):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        for name, value in (("policy_file", self.file), ("policy_dirs", [str(self.folder / "d")])):
            CONF.set_override(
                name, value if isinstance(value, list) else str(value), "oslo_policy"
            )
            self.addCleanup(CONF.clear_override, name, group="oslo_policy")

    def test_files_are_optional(self):
        self.assertEqual([], policy_files.find(CONF))

    def test_files_of_folders_follow_policy_file(self):
        self.file.touch()
        (self.folder / "d" / "inner").mkdir(parents=True)
        for name in ("b.yaml", "a.yaml", ".hidden"):
            (self.folder / "d" / name).touch()
        found = [path.name for path in policy_files.find(CONF)]
        self.assertEqual(["policy.yaml", "a.yaml", "b.yaml"], found)

    def test_state_differs_after_each_change(self):
        seen = [policy_files.state(CONF)]
        for change in (
            lambda: self.file.write_text("a"),
            lambda: self.file.write_text("bb"),
            lambda: self.file.rename(self.folder / "other"),
            lambda: (self.folder / "d").write_text("no folder"),
        ):
            change()
            found = policy_files.state(CONF)
            self.assertNotIn(found, seen[-1:])
            self.assertEqual(found, policy_files.state(CONF))
            seen.append(found)


class ParsedTest(unittest.TestCase):
    """What oslo.policy makes of rules, as the validation expects it."""

    def test_parsed_rules_have_expected_types(self):
        def parsed(text):
            return oslo_policy.RuleDefault("x", text).check

        for text in ("nonsense", "!"):
            self.assertEqual("!", str(parsed(text)))
        self.assertIs(policy_files._AttributeCheck, type(parsed("user_id:a")))
        self.assertIsNot(policy_files._AttributeCheck, type(parsed("role:a")))
        self.assertIsInstance(parsed("rule:a"), oslo_policy.RuleCheck)
        self.assertIsInstance(parsed("not role:a"), oslo_policy.NotCheck)
        self.assertEqual("role:a", str(parsed("not role:a").rule))
        self.assertEqual(2, len(parsed("role:a and role:b").rules))
        self.assertEqual(2, len(parsed("role:a or role:b").rules))
