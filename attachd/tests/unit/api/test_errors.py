# SPDX-License-Identifier: Apache-2.0
"""Faults made of exceptions."""

import json
import unittest

from attachd import exception
from attachd.api import errors
from attachd.tests import backends

REQUEST = "req-1"


class FaultTest(unittest.TestCase):
    def test_each_status_has_the_key_of_the_api(self):
        cases = [
            (exception.BadRequest(reason="x"), 400, "badRequest"),
            (exception.Forbidden(action="x"), 403, "forbidden"),
            (exception.VolumeNotFound(volume_id="x"), 404, "itemNotFound"),
            (exception.NotAcceptable(version=4, oldest=1, latest=2), 406, "computeFault"),
            (exception.Conflict(reason="x"), 409, "conflictingRequest"),
            (exception.TooLarge(what="x", limit=1), 413, "overLimit"),
            (exception.UnsupportedMediaType(), 415, "badMediaType"),
        ]
        for error, status, key in cases:
            with self.subTest(key):
                fault = errors.fault(error, REQUEST)
                ((found, content),) = json.loads(fault.body).items()
                self.assertEqual((status, key), (fault.status, found))
                self.assertEqual((status, str(error)), (content["code"], content["message"]))

    def test_what_is_too_large_may_be_retried_at_once(self):
        fault = errors.fault(exception.TooLarge(what="x", limit=1), REQUEST)
        self.assertEqual("0", json.loads(fault.body)["overLimit"]["retryAfter"])
        self.assertEqual({"Retry-After": "0"}, fault.headers)

    def test_who_is_unknown_is_told_as_keystone_does(self):
        fault = errors.fault(exception.Unauthorized(reason="who?"), REQUEST)
        expected = {"code": 401, "title": "Unauthorized", "message": "who?"}
        self.assertEqual({"error": expected}, json.loads(fault.body))
        self.assertIn("WWW-Authenticate", fault.headers)

    def test_broken_utf_8_is_the_senders_mistake(self):
        error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")
        self.assertEqual(400, errors.fault(error, REQUEST).status)

    def test_what_nobody_foresaw_is_logged_once_and_not_shown(self):
        with self.assertLogs("attachd.api.errors", "ERROR") as logged:
            fault = errors.fault(KeyError("secret"), REQUEST)
        self.assertEqual(500, fault.status)
        self.assertNotIn(b"secret", fault.body)
        self.assertIn(REQUEST, json.loads(fault.body)["computeFault"]["message"])
        self.assertEqual(1, len(logged.records))
        self.assertIsInstance(logged.records[0].exc_info[1], KeyError)

    def test_a_failure_of_ours_is_logged_and_shown(self):
        with self.assertLogs("attachd.api.errors", "WARNING") as logged:
            fault = errors.fault(exception.Unavailable(reason="no queue"), REQUEST)
        self.assertEqual(503, fault.status)
        self.assertIn("serviceUnavailable", json.loads(fault.body))
        self.assertEqual({"Retry-After": "5"}, fault.headers)
        self.assertEqual(1, len(logged.records))

    def test_what_passes_may_be_retried_after_a_while(self):
        late = exception.ManagerTimeout(backend="h@b", about="attachment x")
        cases = [
            (late, "5"),
            (exception.Unavailable(reason="x", retry_after=30), "30"),
            (exception.Unavailable(reason="x", retry_after=0.2), "1"),
            (exception.Unavailable(reason="x", retry_after=1e9), "3600"),
            (exception.DefaultTypeMissing(name="x"), "5"),
        ]
        for error, seconds in cases:
            with self.subTest(error=error):
                fault = errors.fault(error, REQUEST)
                self.assertEqual({"Retry-After": seconds}, fault.headers)
        backends.override(self, "retry_after", 17, "api")
        self.assertEqual({"Retry-After": "17"}, errors.fault(late, REQUEST).headers)

    def test_what_does_not_pass_is_not_to_be_retried(self):
        for error in (exception.BadRequest(reason="x"), KeyError("x")):
            self.assertNotIn("Retry-After", errors.fault(error, REQUEST).headers)

    def test_a_mistake_of_the_sender_is_not_logged(self):
        with self.assertNoLogs("attachd.api.errors"):
            errors.fault(exception.BadRequest(reason="x"), REQUEST)
