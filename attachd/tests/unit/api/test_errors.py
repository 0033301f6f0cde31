# SPDX-License-Identifier: Apache-2.0
"""Tests of the conversion of exceptions into faults."""

import json
import unittest

from attachd import exception
from attachd.api import errors
from attachd.tests.fixtures import conf_fixture

REQUEST = "req-1"


class PathsTest(unittest.TestCase):
    def test_error_of_server_has_no_path_and_log_has_it(self):
        error = exception.Unavailable(reason="Backend a is down: /var/lib/a is missing.")
        with self.assertLogs("attachd.api.errors", "WARNING") as logged:
            body = json.loads(errors.fault(error, "req-1").body)
        self.assertEqual(
            "Backend a is down: (path) is missing.", body["serviceUnavailable"]["message"]
        )
        self.assertIn("/var/lib/a is missing.", logged.output[0])

    def test_error_of_caller_is_unchanged(self):
        body = json.loads(errors.fault(exception.BadRequest(reason="No /dev/vdb."), "req-1").body)
        self.assertEqual("No /dev/vdb.", body["badRequest"]["message"])


class FaultTest(unittest.TestCase):
    def test_each_status_has_fault_name_of_api(self):
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

    def test_reason_code_is_shown_under_attachd_version_only(self):
        for error, code in (
            (exception.VolumeNotFound(volume_id="x"), "attachd.volume_not_found"),
            (exception.Unauthorized(reason="who?"), "attachd.unauthorized"),
            (KeyError("secret"), "attachd.internal_error"),
        ):
            for version, expected in ((None, None), ((1, 0), code)):
                body = json.loads(errors.fault(error, REQUEST, version).body)
                ((_key, content),) = body.items()
                self.assertEqual(expected, content.get("reason_code"))

    def test_too_large_request_may_be_retried_at_once(self):
        fault = errors.fault(exception.TooLarge(what="x", limit=1), REQUEST)
        self.assertEqual("0", json.loads(fault.body)["overLimit"]["retryAfter"])
        self.assertEqual({"Retry-After": "0"}, fault.headers)

    def test_unauthorized_has_form_of_keystone(self):
        fault = errors.fault(exception.Unauthorized(reason="who?"), REQUEST)
        expected = {"code": 401, "title": "Unauthorized", "message": "who?"}
        self.assertEqual({"error": expected}, json.loads(fault.body))
        self.assertIn("WWW-Authenticate", fault.headers)

    def test_invalid_utf_8_returns_400(self):
        error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")
        self.assertEqual(400, errors.fault(error, REQUEST).status)

    def test_unexpected_error_is_logged_once_and_hidden(self):
        with self.assertLogs("attachd.api.errors", "ERROR") as logged:
            fault = errors.fault(KeyError("secret"), REQUEST)
        self.assertEqual(500, fault.status)
        self.assertNotIn(b"secret", fault.body)
        self.assertIn(REQUEST, json.loads(fault.body)["computeFault"]["message"])
        self.assertEqual(1, len(logged.records))
        self.assertIsInstance(logged.records[0].exc_info[1], KeyError)

    def test_server_error_is_logged_and_shown(self):
        with self.assertLogs("attachd.api.errors", "WARNING") as logged:
            fault = errors.fault(exception.Unavailable(reason="no queue"), REQUEST)
        self.assertEqual(503, fault.status)
        self.assertIn("serviceUnavailable", json.loads(fault.body))
        self.assertEqual({"Retry-After": "5"}, fault.headers)
        self.assertEqual(1, len(logged.records))

    def test_temporary_error_has_retry_after(self):
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
        conf_fixture.override(self, "retry_after", 17, "api")
        self.assertEqual({"Retry-After": "17"}, errors.fault(late, REQUEST).headers)

    def test_permanent_error_has_no_retry_after(self):
        for error in (exception.BadRequest(reason="x"), KeyError("x")):
            self.assertNotIn("Retry-After", errors.fault(error, REQUEST).headers)

    def test_client_error_is_not_logged(self):
        with self.assertNoLogs("attachd.api.errors"):
            errors.fault(exception.BadRequest(reason="x"), REQUEST)
