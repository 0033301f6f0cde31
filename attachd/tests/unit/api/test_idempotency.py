# SPDX-License-Identifier: Apache-2.0
"""What one key does with one request, with the table replaced; see functional/test_idempotency."""

import itertools
import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import idempotency
from attachd.conf import CONF
from attachd.db import idempotency_keys

USE = idempotency.KeyUse("d", "f")
IDEMPOTENCY_SPEC = idempotency.IdempotencySpec(
    lambda answer: {"kept": answer}, lambda _ctx, i, kept: (i, kept)
)


def known(status=None, answer=None, *, fingerprint="f", made=False, repeated=True):
    return idempotency_keys.KeyRecord(fingerprint, "r", made, status, answer, repeated)


class OnceTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        for name in ("claim", "finish", "refuse"):
            patched = mock.patch.object(idempotency_keys, name, return_value=True)
            setattr(self, name, self.enterContext(patched))
        self.claim.return_value = known(repeated=False)
        self.response = webob.Response(status=202)

    def run_once(self, run):
        return idempotency.run_once(mock.Mock(), self.response, USE, IDEMPOTENCY_SPEC, run)

    def refusing(self, error):
        def run(_claim):
            raise error

        return run

    def test_what_went_well_is_kept_with_its_status(self):
        self.assertEqual({"id": 1}, self.run_once(lambda _claim: {"id": 1}))
        self.finish.assert_called_once_with("d", 202, {"kept": {"id": 1}})

    def test_what_was_kept_is_answered_and_nothing_is_run(self):
        self.claim.return_value = known(201, {"x": 1})
        self.assertEqual(("r", {"x": 1}), self.run_once(self.fail))
        self.assertEqual(201, self.response.status_int)

    def test_a_refusal_is_kept_and_answered_as_it_was(self):
        refused = exception.QuotaExceeded("Too much.")
        with self.assertRaises(exception.QuotaExceeded):
            self.run_once(self.refusing(refused))
        ((digest, status, kept), _) = self.refuse.call_args
        self.assertEqual(("d", 413), (digest, status))
        self.claim.return_value = known(status, kept)
        with self.assertRaisesRegex(exception.QuotaExceeded, r"^Too much\.$"):
            self.run_once(self.fail)

    def test_a_refusal_of_a_later_release_is_a_conflict(self):
        self.claim.return_value = known(418, {"error": "IsTeapot", "message": "Short."})
        with self.assertRaisesRegex(exception.Conflict, "Short"):
            self.run_once(self.fail)

    def test_a_failure_of_the_service_is_no_answer(self):
        for error in (exception.Unavailable(reason="x"), ZeroDivisionError()):
            with self.assertRaises(type(error)):
                self.run_once(self.refusing(error))
        self.refuse.assert_not_called()

    def test_a_refusal_beside_a_run_that_went_well_is_asked_again(self):
        self.refuse.return_value = False
        outcomes = iter((exception.Conflict(reason="held"), None))

        def run(_claim):
            if error := next(outcomes):
                raise error
            return {"id": 2}

        self.assertEqual({"id": 2}, self.run_once(run))

    def test_a_refusal_about_what_it_has_is_told(self):
        self.refuse.return_value = False

        def run(claim):
            claim.held = True
            raise exception.Conflict(reason="is being deleted")

        with self.assertRaisesRegex(exception.Conflict, "being deleted"):
            self.run_once(run)

    def test_what_vanished_while_it_was_gone_on_with_is_made_anew(self):
        outcomes = iter((exception.AttachmentNotFound(attachment_id="r"), None))

        def run(claim):
            claim.held = True
            if error := next(outcomes):
                raise error
            return {"id": 3}

        self.assertEqual({"id": 3}, self.run_once(run))
        self.refuse.assert_not_called()

    def test_whoever_always_comes_late_is_told_to_come_back(self):
        runs = itertools.count()

        def run(_claim):
            next(runs)
            raise idempotency_keys.AlreadyMade

        with self.assertRaisesRegex(idempotency.KeyInUse, "still being worked on"):
            self.run_once(run)
        self.assertEqual(3, next(runs))

    def test_what_is_gone_is_told_and_not_kept(self):
        with self.assertRaises(idempotency.KeyResourceGone):
            self.run_once(self.refusing(idempotency.KeyResourceGone(kind="volume", id="v")))
        self.refuse.assert_not_called()


class UseTest(unittest.TestCase):
    def test_nothing_runs_into_each_other(self):
        ctx = mock.Mock(project_id="p", user_id="u")
        other = mock.Mock(project_id="pu", user_id="")
        uses = {
            idempotency.KeyUse.of(ctx, "k", "a", "b"),
            idempotency.KeyUse.of(ctx, "k", "ab"),
            idempotency.KeyUse.of(ctx, "kk", "a", "b"),
            idempotency.KeyUse.of(other, "k", "a", "b"),
        }
        self.assertEqual(
            (4, 3, 2),
            (
                len(uses),
                len({use.digest for use in uses}),
                len({use.fingerprint for use in uses}),
            ),
        )

    def test_the_order_of_keys_makes_no_difference(self):
        ctx = mock.Mock(project_id="p", user_id="u")
        self.assertEqual(
            idempotency.KeyUse.of(ctx, "k", {"a": 1, "b": 2}),
            idempotency.KeyUse.of(ctx, "k", {"b": 2, "a": 1}),
        )
