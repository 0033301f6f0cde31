# SPDX-License-Identifier: Apache-2.0
"""Who asks, and whether they may."""

from types import SimpleNamespace
import unittest

from attachd import context, exception


class _Rules:
    """Allows what it is told to and keeps the questions."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.questions: list[tuple[str, dict[str, str]]] = []

    def __call__(self, who: context.RequestContext, rule: str, target: dict[str, str]) -> None:
        self.questions.append((rule, dict(target)))
        if rule not in self._allowed:
            raise exception.Forbidden(action=rule)


class AuthorizeTest(unittest.TestCase):
    """Policy is asked about the object that is acted on."""

    def test_the_target_is_the_objects_project_and_user(self):
        rules = _Rules("rule")
        mine = context.RequestContext(user_id="u", project_id="p", authorizer=rules)
        mine.authorize("rule", SimpleNamespace(project_id="other", user_id="someone"))
        self.assertEqual(
            [("rule", {"project_id": "other", "user_id": "someone"})], rules.questions
        )

    def test_without_an_object_the_target_is_the_callers_own_project(self):
        rules = _Rules("rule")
        context.RequestContext(user_id="u", project_id="p", authorizer=rules).authorize("rule")
        self.assertEqual([("rule", {"project_id": "p", "user_id": "u"})], rules.questions)

    def test_what_policy_refuses_is_refused(self):
        mine = context.RequestContext(project_id="p", authorizer=_Rules())
        with self.assertRaises(exception.Forbidden):
            mine.authorize("rule")

    def test_nothing_is_allowed_where_nobody_decides(self):
        with self.assertRaises(RuntimeError):
            context.RequestContext(project_id="p", is_admin=True).authorize("rule")


class CrossingTest(unittest.TestCase):
    """What is left of a context on the other side of RPC."""

    def test_identity_roles_and_request_id_arrive(self):
        sent = context.RequestContext(
            user_id="u", project_id="p", roles=["member"], is_admin=True, overwrite=False
        )
        got = context.RequestContext.from_dict(sent.to_dict())
        for name in ("user_id", "project_id", "roles", "is_admin", "request_id"):
            self.assertEqual(getattr(sent, name), getattr(got, name), name)

    def test_a_context_that_arrived_decides_nothing(self):
        sent = context.RequestContext(project_id="p", authorizer=_Rules("rule"))
        with self.assertRaises(RuntimeError):
            context.RequestContext.from_dict(sent.to_dict()).authorize("rule")

    def test_attachd_itself_is_an_admin_of_no_project(self):
        itself = context.admin()
        self.assertTrue(itself.is_admin)
        self.assertIsNone(itself.project_id)
