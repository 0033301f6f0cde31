# SPDX-License-Identifier: Apache-2.0
"""Requests over the limits of calls to a slow backend, as clients see them."""

from concurrent import futures
import threading
from unittest import mock

from attachd.rpc import bulkheads
from attachd.tests.fixtures import conf_fixture, db_rows
from attachd.tests.fixtures.deployments import connector_body, reservation_body
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import TIMEOUT, wait_until

_KINDS = ("backend", "project", "volume")
_LIMITS = ("max_calls", *(f"max_calls_per_{kind}" for kind in _KINDS))


class WaitingCallsTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.released = threading.Event()
        self.api.backend.driver.script = lambda _call: self.released.wait(TIMEOUT)
        self.pool = self.enterContext(futures.ThreadPoolExecutor(8))
        self.addCleanup(self.released.set)

    def limit(self, name, value):
        conf_fixture.override(self, name, value, "rpc")

    def connect_in_background(self, *volumes):
        """Connect an attachment of each volume; the calls wait for the driver."""
        answers = []
        for number, volume in enumerate(volumes):
            attachment = db_rows.add_attachment(volume)["id"]
            answers.append(self.pool.submit(self.connect, attachment, f"host-{number}"))
        wait_until(lambda: bulkheads.calls_in_progress() == len(volumes))
        return answers

    def connect(self, attachment, host="node"):
        return self.api.request("PUT", f"/attachments/{attachment}", connector_body(host))

    def release(self, answers):
        self.released.set()
        self.assertEqual([200] * len(answers), [answer.result().status for answer in answers])

    def limit_wait(self):
        """Have calls wait for their turn for a moment only."""
        self.enterContext(mock.patch.object(bulkheads, "max_wait", lambda: 0.01))

    def assert_refused(self, answer, status, seconds, message):
        self.assertEqual(status, answer.status, answer.raw)
        self.assertEqual(seconds, answer.headers["retry-after"])
        self.assertRegex(answer.fault, message)

    def test_requests_over_the_limits_wait_and_succeed(self):
        for limit in _LIMITS:
            with self.subTest(limit):
                self.released.clear()
                self.limit(limit, 1)
                volume = db_rows.add_volume(multiattach=True)["id"]
                waiting = self.connect_in_background(volume)
                attached = db_rows.add_attachment(volume, "connected")["id"]
                body = reservation_body(volume, **connector_body("new")["attachment"])
                more = [
                    self.pool.submit(self.api.request, "POST", "/attachments", body),
                    self.pool.submit(self.api.request, "DELETE", f"/attachments/{attached}"),
                ]
                wait_until(lambda: bulkheads._calls.waiting.length == 2)
                self.assertEqual(200, self.api.request("GET", f"/volumes/{volume}").status)
                self.release([*waiting, *more])
                self.limit(limit, None)

    def test_volume_whose_calls_take_too_long_returns_429(self):
        self.limit_wait()
        self.limit("max_calls_per_volume", 2)
        busy, other = (db_rows.add_volume(multiattach=True)["id"] for _ in range(2))
        waiting = self.connect_in_background(busy, busy)
        body = reservation_body(busy, **connector_body("more")["attachment"])
        refused = self.api.request("POST", "/attachments", body)
        self.assert_refused(refused, 429, "1", f"Volume {busy} has 2 calls in progress, and this")
        self.assertEqual(2, len(db_rows.list_attachments(busy)))
        reserved = db_rows.add_attachment(busy)["id"]
        self.assert_refused(self.connect(reserved), 429, "1", "Volume")
        self.assertEqual("reserved", db_rows.get_attachment(reserved)["state"])
        self.assertEqual(200, self.api.request("GET", f"/volumes/{busy}").status)
        waiting.append(self.pool.submit(self.connect, db_rows.add_attachment(other)["id"]))
        self.release(waiting)
        self.assertEqual(200, self.connect(reserved).status)

    def test_project_whose_calls_take_too_long_returns_429(self):
        self.limit_wait()
        self.limit("max_calls_per_project", 2)
        waiting = self.connect_in_background(*(db_rows.add_volume()["id"] for _ in range(2)))
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"])["id"]
        self.assert_refused(self.connect(attachment), 429, "1", "Project .* has 2 calls in")
        self.release(waiting)

    def test_backend_whose_calls_take_too_long_returns_503(self):
        self.limit_wait()
        self.limit("max_calls_per_backend", 1)
        waiting = self.connect_in_background(db_rows.add_volume()["id"])
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"])["id"]
        self.assert_refused(self.connect(attachment), 503, "5", "Backend here@fake has 1 calls")
        self.release(waiting)

    def test_delete_without_a_turn_returns_429_and_keeps_the_attachment(self):
        self.limit_wait()
        self.limit("max_calls_per_volume", 1)
        volume = db_rows.add_volume(multiattach=True)["id"]
        attached = db_rows.add_attachment(volume, "connected")["id"]
        waiting = self.connect_in_background(volume)
        refused = self.api.request("DELETE", f"/attachments/{attached}")
        self.assert_refused(refused, 429, "1", f"Volume {volume} has 1 calls")
        self.assertEqual("connected", db_rows.get_attachment(attached)["state"])
        self.release(waiting)
        self.assertEqual(200, self.api.request("DELETE", f"/attachments/{attached}").status)

    def test_project_with_too_many_waiting_calls_is_refused_before_it_reserves(self):
        self.limit("max_calls", None)
        self.enterContext(mock.patch.object(bulkheads._calls, "threads", 2))
        waiting = self.connect_in_background(db_rows.add_volume()["id"])
        volume = db_rows.add_volume()["id"]
        body = reservation_body(volume, **connector_body("more")["attachment"])
        refused = self.api.request("POST", "/attachments", body)
        self.assert_refused(refused, 429, "1", "Project .* has 1 calls in progress or waiting")
        self.assertEqual([], db_rows.list_attachments(volume))
        self.release(waiting)
