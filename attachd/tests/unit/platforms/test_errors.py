# SPDX-License-Identifier: Apache-2.0
import unittest

from keystoneauth1 import exceptions as transport
from openstack import exceptions

from attachd import exception
from attachd.api.idempotency import KeyInUse, KeyResourceGone
from attachd.platforms import errors
from attachd.platforms.errors import StorageError
from attachd.tests.unit.platforms.fake_storage import refusal


class ErrorsTest(unittest.TestCase):
    def test_reasons_of_table_exist(self):
        known = {
            kind.reason_code().removeprefix("attachd.")
            for kind in vars(exception).values()
            if isinstance(kind, type) and issubclass(kind, exception.AttachdError)
        }
        self.assertEqual(set(), set(errors._BY_REASON) - known)
        self.assertEqual("attachd.key_in_use", KeyInUse.reason_code())
        self.assertEqual("attachd.key_resource_gone", KeyResourceGone.reason_code())

    def test_reason_decides_before_status(self):
        for status, reason, code in (
            (400, "attachment_limit_exceeded", "RESOURCE_EXHAUSTED"),
            (400, "volume_not_available", "FAILED_PRECONDITION"),
            (409, "agent_unavailable", "UNAVAILABLE"),
            (400, "bad_request", "INVALID_ARGUMENT"),
            (401, "", "UNAVAILABLE"),
            (403, "", "PERMISSION_DENIED"),
            (404, "volume_not_found", "NOT_FOUND"),
            (409, "conflict", "ABORTED"),
            (413, "", "RESOURCE_EXHAUSTED"),
            (429, "", "UNAVAILABLE"),
            (500, "internal_error", "UNAVAILABLE"),
            (504, "manager_timeout", "DEADLINE_EXCEEDED"),
        ):
            self.assertEqual(code, refusal(status, reason).code.name, (status, reason))

    def test_failures_without_answer_may_be_repeated(self):
        for failure, code in (
            (transport.ConnectFailure("refused"), "UNAVAILABLE"),
            (transport.ConnectTimeout("late"), "DEADLINE_EXCEEDED"),
            (exceptions.SDKException("odd"), "UNAVAILABLE"),
        ):
            error = StorageError(failure)
            self.assertEqual((code, "", 0), (error.code.name, error.reason, error.status))

    def test_replayed_answers_are_recognized(self):
        self.assertFalse(refusal(413).is_replayed)
        self.assertTrue(refusal(413, **{"Idempotent-Replayed": "true"}).is_replayed)

    def test_refused_sizes_are_recognized(self):
        text = "Invalid input for field/attribute {}. Value: 9."
        self.assertTrue(errors.is_about_size(refusal(400, "invalid_input", text.format("size"))))
        self.assertFalse(errors.is_about_size(refusal(400, "invalid_input", text.format("name"))))
        self.assertFalse(errors.is_about_size(refusal(400, "bad_request", text.format("size"))))

    def test_refused_zones_are_recognized(self):
        text = "Invalid input for field/attribute {}. Value: mars."
        zone = text.format("availability_zone")
        self.assertTrue(errors.is_about_zone(refusal(400, "invalid_input", zone)))
        other = text.format("size")
        self.assertFalse(errors.is_about_zone(refusal(400, "invalid_input", other)))
