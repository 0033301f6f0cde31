# SPDX-License-Identifier: Apache-2.0
"""Tests of idempotency keys, with the table replaced; see functional/test_idempotency."""

import itertools
import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import idempotency
from attachd.db import idempotency_keys
from attachd.tests.fixtures import conf_fixture

USE = idempotency.KeyUse("d", "f")
IDEMPOTENCY_SPEC = idempotency.IdempotencySpec(
    lambda answer: {"kept": answer}, lambda _ctx, i, kept: (i, kept)
)


def known(status=None, answer=None, *, fingerprint="f", made=False, repeated=True):
    return idempotency_keys.KeyRecord(fingerprint, "r", made, status, answer, repeated)


class RunOnceTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
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

    def test_success_is_stored_with_status(self):
        self.assertEqual({"id": 1}, self.run_once(lambda _claim: {"id": 1}))
        self.finish.assert_called_once_with("d", 202, {"kept": {"id": 1}})

    def test_success_that_is_not_final_is_not_stored(self):
        unfinished = idempotency.IdempotencySpec(lambda _answer: None, IDEMPOTENCY_SPEC.remake)
        answer = idempotency.run_once(
            mock.Mock(), self.response, USE, unfinished, lambda _claim: {"id": 1}
        )
        self.assertEqual({"id": 1}, answer)
        self.finish.assert_not_called()

    def test_stored_response_is_repeated_without_run(self):
        self.claim.return_value = known(201, {"x": 1})
        self.assertEqual(("r", {"x": 1}), self.run_once(self.fail))
        self.assertEqual(201, self.response.status_int)

    def test_refusal_is_stored_and_repeated(self):
        refused = exception.QuotaExceeded("Too much.")
        with self.assertRaises(exception.QuotaExceeded):
            self.run_once(self.refusing(refused))
        ((digest, status, kept), _) = self.refuse.call_args
        self.assertEqual(("d", 413), (digest, status))
        self.claim.return_value = known(status, kept)
        with self.assertRaisesRegex(exception.QuotaExceeded, r"^Too much\.$"):
            self.run_once(self.fail)

    def test_refusal_of_later_release_becomes_conflict(self):
        self.claim.return_value = known(418, {"error": "IsTeapot", "message": "Short."})
        with self.assertRaisesRegex(exception.Conflict, "Short"):
            self.run_once(self.fail)

    def test_server_failure_is_not_stored(self):
        for error in (exception.Unavailable(reason="x"), ZeroDivisionError()):
            with self.assertRaises(type(error)):
                self.run_once(self.refusing(error))
        self.refuse.assert_not_called()

    def test_refusal_during_successful_run_is_retried(self):
        self.refuse.return_value = False
        outcomes = iter((exception.Conflict(reason="held"), None))

        def run(_claim):
            if error := next(outcomes):
                raise error
            return {"id": 2}

        self.assertEqual({"id": 2}, self.run_once(run))

    def test_refusal_about_own_resource_is_raised(self):
        self.refuse.return_value = False

        def run(claim):
            claim.held = True
            raise exception.Conflict(reason="is being deleted")

        with self.assertRaisesRegex(exception.Conflict, "being deleted"):
            self.run_once(run)

    def test_resource_deleted_during_run_is_created_again(self):
        outcomes = iter((exception.AttachmentNotFound(attachment_id="r"), None))

        def run(claim):
            claim.held = True
            if error := next(outcomes):
                raise error
            return {"id": 3}

        self.assertEqual({"id": 3}, self.run_once(run))
        self.refuse.assert_not_called()

    def test_run_that_always_loses_gets_key_in_use(self):
        runs = itertools.count()

        def run(_claim):
            next(runs)
            raise idempotency_keys.AlreadyMade

        with self.assertRaisesRegex(idempotency.KeyInUse, "still being worked on"):
            self.run_once(run)
        self.assertEqual(3, next(runs))

    def test_deleted_resource_is_reported_and_not_stored(self):
        with self.assertRaises(idempotency.KeyResourceGone):
            self.run_once(self.refusing(idempotency.KeyResourceGone(kind="volume", id="v")))
        self.refuse.assert_not_called()


class KeyUseTest(unittest.TestCase):
    def test_digest_separates_its_parts(self):
        ctx = mock.Mock(project_id="p", user_id="u")
        other = mock.Mock(project_id="pu", user_id="")
        uses = {
            idempotency.KeyUse.from_request(ctx, "k", "a", "b"),
            idempotency.KeyUse.from_request(ctx, "k", "ab"),
            idempotency.KeyUse.from_request(ctx, "kk", "a", "b"),
            idempotency.KeyUse.from_request(other, "k", "a", "b"),
        }
        self.assertEqual(
            (4, 3, 2),
            (
                len(uses),
                len({use.digest for use in uses}),
                len({use.fingerprint for use in uses}),
            ),
        )

    def test_fingerprint_ignores_order_of_keys(self):
        ctx = mock.Mock(project_id="p", user_id="u")
        self.assertEqual(
            idempotency.KeyUse.from_request(ctx, "k", {"a": 1, "b": 2}),
            idempotency.KeyUse.from_request(ctx, "k", {"b": 2, "a": 1}),
        )
