# SPDX-License-Identifier: Apache-2.0
"""Tests of the recipes of doc/source/admin/policy.rst."""

from pathlib import Path
import unittest

from attachd.api import policy_rules
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.tests.fixtures import guides, lifetime

GUIDE = Path(__file__).parents[4] / "doc/source/admin/policy.rst"
CREATE, DELETE = "volume:attachment_create", "volume:attachment_delete"
LOOK, WATCH = "volume:attachment_get", "volume:event_watch"
SECRETS = "volume:attachment_connection_info"
AGAIN = "volume:attachment_connection_info_again"
MULTIATTACH = "volume:multiattach"
CREATE_ON_HOST = "volume:attachment_create_on_host"
ALONE = {"context_is_admin", "admin_api", "admin_or_project_member", "admin_or_project_reader"}


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not GUIDE.is_file():
            self.skipTest("the documentation is not here, only what is installed")
        self.recipes = {
            parse_block.readers: parse_block.text
            for parse_block in guides.parse_blocks(GUIDE)
            if parse_block.language == "yaml"
        }
        self.file = lifetime.temp_dir(self) / "policy.yaml"
        CONF([], project="attachd", default_config_files=[])
        policy_rules.get_enforcer()  # registers the options
        CONF.set_override("policy_file", str(self.file), group="oslo_policy")
        self.addCleanup(CONF.clear_override, "policy_file", group="oslo_policy")
        self.addCleanup(policy_rules.reset)

    def cook(self, *names):
        """Load recipes, which must be valid."""
        self.file.write_text("".join(self.recipes[name] for name in names), encoding="utf-8")
        policy_rules.reset()
        self.assertEqual([], policy_rules.check_files())

    def may(self, roles, *rules, project="p", service_roles=()):
        """Return the rules that allow these roles to act in the project p."""
        asked = RequestContext(
            user_id="u",
            project_id=project,
            roles=roles.split(),
            service_roles=list(service_roles),
        )
        asked.is_admin = policy_rules.is_admin(asked)
        target = {"project_id": "p", "user_id": "other-user"}
        return {rule for rule in rules if policy_rules.allows(asked, rule, target)}


class RecipesTest(Case):
    def test_each_recipe_has_a_test(self):
        self.assertEqual(
            {
                *("attachers", "compute", "orchestrator", "auditor", "auditor-more", "watcher"),
                *("multiattach", "multiattach-project", "no-force", "read-only", "secrets"),
                "secrets-once",
            },
            set(self.recipes),
        )

    def test_attach_for_some_members(self):
        self.cook("attachers")
        rules = [line.split('"')[1] for line in self.recipes["attachers"].splitlines()][1:]
        self.assertEqual(12, len(rules))
        self.assertEqual(set(), self.may("member reader", *rules))
        self.assertEqual({LOOK, "volume:create"}, self.may("member reader", LOOK, "volume:create"))
        self.assertEqual(set(), self.may("attacher", *rules))
        self.assertEqual(set(), self.may("member attacher", *rules, project="q"))
        self.assertEqual({*rules}, self.may("member attacher", *rules))
        self.assertEqual({*rules}, self.may("admin", *rules, project="q"))

    def test_attach_through_nova_only(self):
        others = "".join(self.recipes["attachers"].splitlines(keepends=True)[1:])
        self.recipes["compute"] += others
        self.cook("compute")
        self.assertEqual(set(), self.may("member", CREATE, DELETE))
        through = {"service_roles": ["service"]}
        self.assertEqual({CREATE, DELETE}, self.may("member", CREATE, DELETE, **through))
        self.assertEqual(set(), self.may("member", CREATE, project="q", **through))
        self.assertEqual(set(), self.may("reader", CREATE, **through))

    def test_attach_to_hosts_by_name(self):
        self.cook("orchestrator")
        both = {CREATE, CREATE_ON_HOST}
        self.assertEqual({CREATE}, self.may("member", *both))
        self.assertEqual(both, self.may("member orchestrator", *both))
        self.assertNotIn(CREATE, self.may("member orchestrator", *both, project="q"))
        self.assertEqual(both, self.may("member service", *both))
        self.assertTrue(self.may("orchestrator", "volume:agent_get"))
        self.assertFalse(self.may("orchestrator", "volume:agent_delete"))

    def test_auditor_reads_everything_and_changes_nothing(self):
        self.cook("auditor")
        asked = RequestContext(user_id="u", project_id="q", roles=["auditor"])
        self.assertTrue(policy_rules.is_admin(asked))
        seen = {
            rule.name
            for rule in policy_rules.list_rules()
            if rule.name not in ALONE
            and rule.check_str in (policy_rules.READER, policy_rules.ALLOW_ALL)
        }
        every = {rule.name for rule in policy_rules.list_rules()} - ALONE
        self.assertEqual(seen, self.may("auditor", *every, project="q"))
        self.assertIn(LOOK, seen)
        self.assertNotIn(SECRETS, seen)

    def test_auditor_leaves_other_personas_unchanged(self):
        every = {rule.name for rule in policy_rules.list_rules()}
        asked = [
            (roles, project)
            for roles in ("admin", "member", "reader", "member reader", "service", "")
            for project in ("p", "q")
        ]
        policy_rules.reset()
        before = [self.may(roles, *every, project=project) for roles, project in asked]
        self.cook("auditor")
        after = [self.may(roles, *every, project=project) for roles, project in asked]
        self.assertEqual(before, after)

    def test_auditor_reads_other_resources(self):
        self.cook("auditor", "auditor-more")
        rules = [line.split('"')[1] for line in self.recipes["auditor-more"].splitlines()]
        self.assertEqual({*rules}, self.may("auditor", *rules, project="q"))
        self.assertEqual(set(), self.may("member", *rules))

    def test_monitoring_user(self):
        self.cook("auditor", "watcher")
        self.assertTrue(self.may("auditor", WATCH, project="q"))
        self.assertTrue(self.may("admin", WATCH))
        self.assertFalse(self.may("member reader", WATCH))

    def test_multiattach_for_some_projects(self):
        self.cook("multiattach")
        bootable = "volume:multiattach_bootable_volume"
        self.assertEqual(set(), self.may("member", MULTIATTACH, bootable))
        self.assertEqual({MULTIATTACH}, self.may("member cluster", MULTIATTACH, bootable))
        self.assertEqual({MULTIATTACH, bootable}, self.may("admin", MULTIATTACH, bootable))
        self.cook("multiattach-project")
        self.assertFalse(self.may("member", MULTIATTACH))
        self.assertTrue(self.may("member", MULTIATTACH, project="6f70656e2d73657361"))

    def test_force_is_denied(self):
        self.cook("no-force")
        forced = {
            rule.name
            for rule in policy_rules.list_rules()
            if "force" in rule.name or "override" in rule.name
        } | {"volume_extension:volume_admin_actions:reset_status"}
        self.assertEqual(set(), self.may("admin", *forced))
        self.assertEqual({DELETE}, self.may("admin", DELETE))

    def test_read_only_volumes(self):
        self.cook("read-only")
        rules = ("volume:update_readonly_flag", "volume:retype")
        self.assertEqual(set(), self.may("member", *rules))
        self.assertEqual({*rules}, self.may("admin", *rules))

    def test_members_with_secrets_once(self):
        self.cook("secrets-once")
        self.assertEqual({SECRETS}, self.may("member", SECRETS, AGAIN))
        both = {SECRETS, AGAIN}
        self.assertEqual(both, self.may("member", *both, service_roles=["service"]))

    def test_members_without_secrets(self):
        self.cook("secrets")
        self.assertFalse(self.may("member", SECRETS))
        self.assertTrue(self.may("member", SECRETS, service_roles=["service"]))
        self.assertTrue(self.may("admin", SECRETS))
