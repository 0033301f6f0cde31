# SPDX-License-Identifier: Apache-2.0
"""Tests of legacy attach actions and the attachments API on one volume at the same time."""

import functools
import itertools
import random
import time
from typing import Any

from attachd.tests import concurrency
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional.race_case import ApiRaceCase
from attachd.tests.wait import TIMEOUT

ROUNDS = 4
ALLOWED = {200, 202, 204, 400, 404, 409}


def connector(number: int) -> dict[str, Any]:
    return {"host": f"compute-{number}", "initiator": f"iqn.2026-01.org.example:{number}"}


class Client:
    """Takes the volume, uses it and gives it back, again and again."""

    def __init__(self, api: wsgi_api.WsgiApi, volume: str, number: int) -> None:
        self._api = api
        self._volume = volume
        self._number = number
        self._random = random.Random(number)
        self._server = f"{number:08}-1111-4111-8111-111111111111"
        self.spans: list[tuple[float, float]] = []
        self.statuses: set[int] = set()

    def _ask(self, method: str, path: str, body: Any = None) -> wsgi_api.Response:
        answer = self._api.request(method, path, body)
        self.statuses.add(answer.status)
        return answer

    def act(self, **action: Any) -> bool:
        """Send a volume action; return whether it succeeded."""
        return self._ask("POST", f"/volumes/{self._volume}/action", action).status < 300

    def work(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while len(self.spans) < ROUNDS and time.monotonic() < deadline:
            if not self._take():
                time.sleep(0.01 * self._random.random())  # lest all try at the same moment
                continue
            since = time.monotonic()
            self._use()
            until = time.monotonic()
            self._give_back()
            self.spans.append((since, until))

    def _take(self) -> bool:
        raise NotImplementedError

    def _use(self) -> None:
        raise NotImplementedError

    def _give_back(self) -> None:
        raise NotImplementedError


class Node(Client):
    """By the older calls."""

    def _take(self) -> bool:
        return self.act(**{"os-reserve": None})

    def _use(self) -> None:
        host = connector(self._number)
        assert self.act(**{"os-initialize_connection": {"connector": host}})
        if self._random.random() < 0.5:
            sent = {"instance_uuid": self._server, "mountpoint": "/dev/vdb"}
            assert self.act(**{"os-attach": sent})
            assert self.act(**{"os-begin_detaching": None})

    def _give_back(self) -> None:
        if self._random.random() < 0.5:
            host = connector(self._number)
            assert self.act(**{"os-terminate_connection": {"connector": host}})
        rows_of_mine = [
            row["id"]
            for row in db_rows.list_attachments(self._volume)
            if row["kind"] == "legacy" and row["instance_uuid"] == self._server
        ]
        if rows_of_mine:
            assert self.act(**{"os-detach": {"attachment_id": rows_of_mine[0]}})
        elif any(row["host"] == f"compute-{self._number}" for row in self._held()):
            assert self.act(**{"os-unreserve": None})

    def _held(self) -> list[dict[str, Any]]:
        return db_rows.list_attachments(self._volume)


class Server(Client):
    """By the attachments API."""

    def _take(self) -> bool:
        wanted = {"volume_uuid": self._volume, "instance_uuid": self._server}
        answer = self._ask("POST", "/attachments", {"attachment": wanted})
        if answer.status == 200:
            self._path = f"/attachments/{answer.body['attachment']['id']}"
        return answer.status == 200

    def _use(self) -> None:
        self._ask("PUT", self._path, {"attachment": {"connector": connector(self._number)}})
        self._ask("POST", f"{self._path}/action", {"os-complete": None})

    def _give_back(self) -> None:
        assert self._ask("DELETE", self._path).status == 200


class ConcurrencyTest(ApiRaceCase):
    def setUp(self):
        super().setUp()
        self.volume_id = self.add_volume()

    def assert_detached(self):
        self.assert_consistent(self.volume_id)
        self.assertEqual([], db_rows.list_attachments(self.volume_id))
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])

    def test_concurrent_legacy_and_new_calls_give_ordinary_volume_one_holder(self):
        kinds = [Node, Server, Node, Server, Node, Server]
        clients = [kind(self.api, self.volume_id, n) for n, kind in enumerate(kinds, 1)]
        self.run_at_once(*[client.work for client in clients])
        self.assert_detached()
        spans = sorted(itertools.chain.from_iterable(client.spans for client in clients))
        self.assertGreater(len(spans), len(clients), "too few clients held the volume")
        for (_since, until), (since, _until) in itertools.pairwise(spans):
            self.assertLessEqual(until, since)
        for client in clients:
            self.assertLessEqual(client.statuses, ALLOWED)

    def act(self, **action):
        return functools.partial(
            self.api.request, "POST", f"/volumes/{self.volume_id}/action", action
        )

    def test_concurrent_os_reserve_succeeds_once(self):
        answers = concurrency.run_at_once(*[self.act(**{"os-reserve": None})] * 8)
        self.assertEqual([202] + [400] * 7, sorted(answer.status for answer in answers))

    def test_concurrent_initialize_connection_of_a_host_grants_once(self):
        ask = self.act(**{"os-initialize_connection": {"connector": connector(1)}})
        answers = concurrency.run_at_once(*[ask] * 6)
        self.assertEqual(1, len({answer.raw for answer in answers}))
        self.assertEqual(["grant"], self.driver.methods)

    def test_concurrent_initialize_connection_and_unreserve_stay_consistent(self):
        for last in ("os-unreserve", "os-detach"):
            for _ in range(5):
                self.act(**{"os-reserve": None})()
                concurrency.run_at_once(
                    self.act(**{"os-initialize_connection": {"connector": connector(1)}}),
                    self.act(**{last: None}),
                )
                self.assert_consistent(self.volume_id)
                self.assertEqual(202, self.act(**{last: None})().status)
                self.assert_detached()

    def test_concurrent_os_attach_and_terminate_connection_leave_no_grant(self):
        said = {"host_name": "compute-1", "mountpoint": "m"}
        for _ in range(5):
            self.act(**{"os-reserve": None})()
            self.act(**{"os-initialize_connection": {"connector": connector(1)}})()
            concurrency.run_at_once(
                self.act(**{"os-attach": said}),
                self.act(**{"os-terminate_connection": {"connector": connector(1)}}),
            )
            self.assertEqual(set(), self.driver.granted())
            self.assert_consistent(self.volume_id)
            self.act(**{"os-detach": None})()
            self.assert_detached()

    def test_concurrent_os_detach_deletes_the_attachment_once(self):
        self.act(**{"os-initialize_connection": {"connector": connector(1)}})()
        self.act(**{"os-attach": {"host_name": "compute-1", "mountpoint": "m"}})()
        answers = concurrency.run_at_once(*[self.act(**{"os-detach": None})] * 6)
        self.assertEqual({202}, {answer.status for answer in answers})
        self.assertEqual(["grant", "revoke"], self.driver.methods)
        self.assert_detached()
