# SPDX-License-Identifier: Apache-2.0
"""Tests of many clients on one volume with random calls, and of the invariants.

The service runs in the test process, as in test_state_machine; its threads make calls overlap.
"""

from collections.abc import Iterator
import contextlib
import functools
import itertools
import random
import threading
import time
from typing import Any, NamedTuple

from attachd import exception
from attachd.drivers.fake import Call
from attachd.tests import concurrency
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional.race_case import ApiRaceCase
from attachd.tests.wait import TIMEOUT

CLIENTS = 8
STEPS = 15
PAUSE = 0.004
SHORT_TIMEOUT = 2  # a failure may block all others permanently; on a slow machine less is tried
"""Seconds that are tried at most."""

ALLOWED = {200, 202, 204, 400, 404, 409}
BROKEN = 500


class AttachmentRef(NamedTuple):
    """When a client surely held the volume: from one answer to the next request."""

    since: float
    until: float
    attachment: str


class Client:
    """Calls at random; a seed decides which."""

    def __init__(
        self, api: wsgi_api.WsgiApi, volume: str, seed: int, timeout: float = TIMEOUT
    ) -> None:
        self._timeout = timeout
        self._api = api
        self._volume = volume
        self._random = random.Random(seed)
        self._held: tuple[float, str] | None = None
        self._connector = {"host": f"compute-{seed}"}
        self.holds: list[AttachmentRef] = []
        self.statuses: set[int] = set()

    def work(self) -> None:
        steps = [self._update, self._update, self._complete, self._check, self._delete]
        done = 0
        deadline = time.monotonic() + self._timeout
        while done < STEPS and time.monotonic() < deadline:
            if self._held is None and not self._create():
                time.sleep(PAUSE * self._random.random())  # lest all try at the same moment
                continue
            self._random.choice(steps)()
            done += 1

    def _ask(self, method: str, path: str, body: Any = None) -> wsgi_api.Response:
        answer = self._api.request(method, path, body)
        self.statuses.add(answer.status)
        return answer

    def _create(self) -> bool:
        wanted: dict[str, Any] = {"volume_uuid": self._volume}
        if self._random.random() < 0.3:
            wanted["connector"] = self._connector
        answer = self._ask("POST", "/attachments", {"attachment": wanted})
        if answer.status == 200:
            self._held = time.monotonic(), answer.body["attachment"]["id"]
        return self._held is not None

    @property
    def _path(self) -> str:
        assert self._held is not None
        return f"/attachments/{self._held[1]}"

    def _update(self) -> None:
        self._ask("PUT", self._path, {"attachment": {"connector": self._connector}})

    def _complete(self) -> None:
        self._ask("POST", f"{self._path}/action", {"os-complete": None})

    def _check(self) -> None:
        self._ask("GET", f"/attachments/detail?volume_id={self._volume}")

    def _delete(self) -> None:
        assert self._held is not None
        since, attachment = self._held
        until = time.monotonic()
        if self._ask("DELETE", self._path).status == 200:
            self.holds.append(AttachmentRef(since, until, attachment))
            self._held = None

    def work_and_leave(self) -> None:
        self.work()
        self.leave()

    def leave(self) -> None:
        """Delete all attachments."""
        while self._held is not None:
            self._delete()


class Vandal(Client):
    """Does things to the attachments of others."""

    def work(self) -> None:
        for _ in range(STEPS):
            listed = self._ask("GET", f"/attachments?volume_id={self._volume}")
            for attachment in listed.body["attachments"]:
                self._held = 0.0, attachment["id"]
                self._random.choice([self._update, self._complete, self._delete])()
            self._held = None


class ConcurrencyTest(ApiRaceCase):
    """One volume, many threads."""

    allows_unknown_access = True

    def assert_consistent(self, volume_id):
        super().assert_consistent(volume_id)
        self.assertIsNone(db_rows.get_volume(volume_id)["lease_holder"])

    def test_concurrent_calls_give_ordinary_volume_one_holder(self):
        volume_id = self.add_volume()
        clients = [Client(self.api, volume_id, seed) for seed in range(CLIENTS)]
        self.run_at_once(*[client.work_and_leave for client in clients])
        self.assert_consistent(volume_id)
        for client in clients:
            self.assertLessEqual(client.statuses, ALLOWED)
        holds = sorted(itertools.chain.from_iterable(client.holds for client in clients))
        self.assertGreater(len(holds), CLIENTS, "too few clients held the volume")
        for one, other in itertools.pairwise(holds):
            self.assertLessEqual(one.until, other.since, (one, other))
        self.assertEqual("available", db_rows.get_volume(volume_id)["status"])
        self.assertEqual(set(), self.driver.granted())

    def test_concurrent_calls_keep_holders_of_multiattach_volume_apart(self):
        volume_id = self.add_volume(multiattach=True)
        clients = [Client(self.api, volume_id, seed) for seed in range(CLIENTS)]
        self.run_at_once(*[client.work for client in clients])
        self.assert_consistent(volume_id)
        for client in clients:
            client.leave()
            self.assertLessEqual(
                client.statuses, ALLOWED - {400, 404}, "a client interfered with another"
            )
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(volume_id)["status"])

    def test_concurrent_calls_with_failing_backend_stay_consistent(self):
        for multiattach in (False, True):
            volume_id = self.add_volume(multiattach=multiattach)
            kinds = [Client, Client, Client, Vandal]
            clients = [
                kind(self.api, volume_id, seed, SHORT_TIMEOUT) for seed, kind in enumerate(kinds)
            ]
            with self._broken_now_and_then():
                self.run_at_once(*[client.work for client in clients])
            for client in clients:
                self.assertLessEqual(client.statuses, ALLOWED | {BROKEN})
            self.assert_consistent(volume_id)
            for row in db_rows.list_attachments(volume_id):
                self.api.request("DELETE", f"/attachments/{row['id']}")
            self.assert_consistent(volume_id)
            self.assertEqual("available", db_rows.get_volume(volume_id)["status"])
            self.assertEqual(set(), self.driver.granted())

    @contextlib.contextmanager
    def _broken_now_and_then(self) -> Iterator[None]:
        chance = random.Random(1)
        lock = threading.Lock()

        def script(call: Call) -> None:
            with lock:
                broken = chance.random() < 0.2
            if broken and call.method in {"grant", "revoke"}:
                raise exception.BackendError("now and then")

        self.driver.script = script
        yield
        self.driver.script = None

    def test_concurrent_repeats_of_one_call_get_the_same_response(self):
        volume_id = self.add_volume()
        attachment_id = db_rows.add_attachment(volume_id, project_id=wsgi_api.PROJECT)["id"]
        body = {"attachment": {"connector": {"host": "compute-1"}}}
        ask = [lambda: self.api.request("PUT", f"/attachments/{attachment_id}", body)] * CLIENTS
        answers = concurrency.run_at_once(*ask)
        result = {str(answer.body["attachment"]["connection_info"]) for answer in answers}
        self.assertEqual(1, len(result))
        self.assertEqual(["grant"], self.driver.methods)

    def test_concurrent_deletes_delete_the_attachment_once(self):
        volume_id = self.add_volume()
        attachment_id = db_rows.add_attachment(
            volume_id, "connected", project_id=wsgi_api.PROJECT
        )["id"]
        ask = [lambda: self.api.request("DELETE", f"/attachments/{attachment_id}")] * CLIENTS
        statuses = sorted(item.status for item in concurrency.run_at_once(*ask))
        self.assertEqual([200] + [404] * (CLIENTS - 1), statuses)
        self.assertEqual(["revoke"], self.driver.methods)

    def test_concurrent_connect_and_delete_leave_no_grant(self):
        body = {"attachment": {"connector": {"host": "compute-1"}}}
        for _ in range(10):
            volume_id = self.add_volume()
            attachment_id = db_rows.add_attachment(volume_id, project_id=wsgi_api.PROJECT)["id"]
            path = f"/attachments/{attachment_id}"
            concurrency.run_at_once(
                functools.partial(self.api.request, "PUT", path, body),
                functools.partial(self.api.request, "DELETE", path),
            )
            self.assertEqual(set(), self.driver.granted())
            self.assertEqual([], db_rows.list_attachments(volume_id))
            self.assertEqual("available", db_rows.get_volume(volume_id)["status"])
