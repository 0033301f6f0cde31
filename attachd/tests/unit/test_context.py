# SPDX-License-Identifier: Apache-2.0
"""The context of a request: identity and authorization."""

import threading
from types import SimpleNamespace
import unittest

from attachd import context, exception
from attachd.tests.wait import TIMEOUT


class _Rules:
    """Allows the given rules and records the questions."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.questions: list[tuple[str, dict[str, str]]] = []

    def __call__(self, who: context.RequestContext, rule: str, target: dict[str, str]) -> None:
        self.questions.append((rule, dict(target)))
        if rule not in self._allowed:
            raise exception.Forbidden(action=rule)


class AuthorizeTest(unittest.TestCase):
    """The policy target of authorize()."""

    def test_authorize_with_object_uses_its_project_and_user(self):
        rules = _Rules("rule")
        ctx = context.RequestContext(user_id="u", project_id="p", authorizer=rules)
        ctx.authorize("rule", SimpleNamespace(project_id="other", user_id="other-user"))
        self.assertEqual(
            [("rule", {"project_id": "other", "user_id": "other-user"})], rules.questions
        )

    def test_authorize_without_object_uses_project_of_caller(self):
        rules = _Rules("rule")
        context.RequestContext(user_id="u", project_id="p", authorizer=rules).authorize("rule")
        self.assertEqual([("rule", {"project_id": "p", "user_id": "u"})], rules.questions)

    def test_authorize_refused_by_policy_raises_forbidden(self):
        ctx = context.RequestContext(project_id="p", authorizer=_Rules())
        with self.assertRaises(exception.Forbidden):
            ctx.authorize("rule")

    def test_authorize_without_authorizer_raises_runtime_error(self):
        with self.assertRaises(RuntimeError):
            context.RequestContext(project_id="p", is_admin=True).authorize("rule")


class SerializationTest(unittest.TestCase):
    """A context after serialization for RPC."""

    def test_context_keeps_identity_roles_and_request_id(self):
        sent = context.RequestContext(
            user_id="u", project_id="p", roles=["member"], is_admin=True, overwrite=False
        )
        got = context.RequestContext.from_dict(sent.to_dict())
        for name in ("user_id", "project_id", "roles", "is_admin", "request_id"):
            self.assertEqual(getattr(sent, name), getattr(got, name), name)

    def test_deserialized_context_has_no_authorizer(self):
        sent = context.RequestContext(project_id="p", authorizer=_Rules("rule"))
        with self.assertRaises(RuntimeError):
            context.RequestContext.from_dict(sent.to_dict()).authorize("rule")

    def test_admin_context_has_no_project(self):
        itself = context.get_admin_context()
        self.assertTrue(itself.is_admin)
        self.assertIsNone(itself.project_id)


class AdminTest(unittest.TestCase):
    """The context of attachd itself."""

    def run_apart(self, do):
        """Call in a thread without a current request, and return the result."""
        found = []
        thread = threading.Thread(target=lambda: found.append(do()))
        thread.start()
        thread.join(TIMEOUT)
        return found[0]

    def test_admin_context_has_ids_of_current_request(self):
        def do():
            asked = context.RequestContext(user_id="alice", global_request_id="req-theirs")
            return asked, context.get_admin_context()

        asked, made = self.run_apart(do)
        self.assertTrue(made.is_admin)
        self.assertIsNone(made.user_id)
        self.assertEqual(
            (asked.request_id, "req-theirs"), (made.request_id, made.global_request_id)
        )

    def test_admin_contexts_without_request_have_own_ids(self):
        first, second = self.run_apart(
            lambda: (context.get_admin_context(), context.get_admin_context())
        )
        self.assertNotEqual(first.request_id, second.request_id)
        self.assertIsNone(second.global_request_id)
