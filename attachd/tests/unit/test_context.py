# SPDX-License-Identifier: Apache-2.0
"""Who asks, and whether they may."""

import threading
from types import SimpleNamespace
import unittest

from attachd import context, exception
from attachd.tests.wait import TIMEOUT


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
        itself = context.get_admin_context()
        self.assertTrue(itself.is_admin)
        self.assertIsNone(itself.project_id)


class AdminTest(unittest.TestCase):
    """What attachd does of itself."""

    def run_apart(self, do):
        """Return what is returned in a thread that works on nothing."""
        found = []
        thread = threading.Thread(target=lambda: found.append(do()))
        thread.start()
        thread.join(TIMEOUT)
        return found[0]

    def test_it_has_the_ids_of_the_request_that_is_worked_on(self):
        def do():
            asked = context.RequestContext(user_id="alice", global_request_id="req-theirs")
            return asked, context.get_admin_context()

        asked, made = self.run_apart(do)
        self.assertTrue(made.is_admin)
        self.assertIsNone(made.user_id)
        self.assertEqual(
            (asked.request_id, "req-theirs"), (made.request_id, made.global_request_id)
        )

    def test_each_has_an_id_of_its_own_where_nothing_is_asked(self):
        first, second = self.run_apart(
            lambda: (context.get_admin_context(), context.get_admin_context())
        )
        self.assertNotEqual(first.request_id, second.request_id)
        self.assertIsNone(second.global_request_id)
