# SPDX-License-Identifier: Apache-2.0
"""Tests that a volume never has two writers, by what reaches the storage.

Three hosts and two volumes.  A host that was attached once writes until the storage refuses it,
and goes on trying then; the writers are stopped and continued.  Clients attach, attach by force,
detach, complete and fence at the same time, and managers are killed.

Each host has a place of its own on each volume.  When an answer says that a host has no access any
more, the test writes a *mark* to its place, behind all hosts.  It has to stay until the host is
attached again.  ATTACHD_TEST_ROUNDS=200 sends more requests, and ATTACHD_TEST_SEED draws others.
"""

from collections.abc import Iterator
from concurrent import futures
import contextlib
import http.client
import os
import random
import signal
import threading
import time
from typing import Any
import uuid

import testtools

from attachd.tests.fixtures import initiators, stored_volumes
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.fixtures.processes import child_pids
from attachd.tests.fixtures.stored_volumes import BLOCK
from attachd.tests.selection import full_only
from attachd.tests.wait import poll, wait_until

REQUESTS = 40 * int(os.environ.get("ATTACHD_TEST_ROUNDS", "4"))
SEED = int(os.environ.get("ATTACHD_TEST_SEED", "20"))
CLIENTS = 4
HOSTS = 3
VOLUMES = 2
CONFIGURATION = """
[rpc]
# A call that was taken by a manager that is killed is never answered, and then repeated.
attach_timeout = 5
"""
ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
ENDLESS = 2**31 - 1
AGAIN = 0.5  # seconds until a refused host logs in again: each try costs a process
LATE = 3.0  # seconds in which a writer begins, or its last blocks arrive; no result depends on it


class Writer:
    """A host that writes to its place of a volume, and goes on when it is refused."""

    def __init__(self, host: initiators.IscsiHost, info: Any, place: int, pattern: int) -> None:
        self._flood = lambda: host.flood(info, ENDLESS, pattern, place)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._process = self._flood()
        self._thread = threading.Thread(target=self._insist)
        self._thread.start()

    def _insist(self) -> None:
        while True:
            self._process.communicate()
            if self._ended.wait(AGAIN):
                return
            with self._lock:
                if self._ended.is_set():
                    return
                self._process = self._flood()

    def send(self, number: signal.Signals) -> None:
        """Stop it, or let it go on."""
        with self._lock:
            self._process.send_signal(number)

    def end(self) -> None:
        """Kill it."""
        with self._lock:
            self._ended.set()
            self._process.kill()
        self._thread.join()


class Place:
    """Where one host writes on one volume, and the mark that has to stay there.

    :ivar attaching: attach requests of the host that have no answer yet
    :ivar attached: how many there were
    :ivar fenced: whether the host is fenced, and none of them can succeed
    :ivar marks_over_data: marks where the host had written since it was attached
    :ivar violations: sentences about marks that did not stay
    """

    def __init__(self, storage: stored_volumes.Storage, volume: str, number: int) -> None:
        self._storage = storage
        self._volume = volume
        self._offset = number * 4 * 2**20
        self._lock = threading.RLock()
        self._mark: bytes | None = None
        self._writer: Writer | None = None
        self._pattern = b""
        self._is_frozen = False
        self.attaching = 0
        self.attached = 0
        self.fenced = False
        self.marks_over_data = 0
        self.violations: list[str] = []

    def token(self) -> int | None:
        """Return what :meth:`silence` takes; None: the host may be attached meanwhile."""
        with self._lock:
            return None if self.attaching else self.attached

    @contextlib.contextmanager
    def request_to_attach(self) -> Iterator[None]:
        """Attach the host within the block."""
        with self._lock:
            if not self.fenced:
                self._remove_mark()
            self.attaching += 1
            self.attached += 1
        try:
            yield
        finally:
            with self._lock:
                self.attaching -= 1

    def silence(self, token: int | None, reason: str) -> None:
        """Write a mark: the host has no access any more, and has not been attached since."""
        with self._lock:
            if token is not None and token == self.token():
                self._write_mark(reason)

    def fence(self) -> None:
        """Write a mark: the host is fenced, also if it is being attached."""
        with self._lock:
            self.fenced = True
            self._write_mark("it was fenced")

    def unfence(self) -> None:
        """Check the mark, before requests to attach the host can succeed again."""
        with self._lock:
            self.check()
            self.fenced = False
            if self.attaching:
                self._mark = None

    def write(self, host: initiators.IscsiHost, info: Any) -> None:
        """Let the host begin to write."""
        with self._lock:
            if self._writer:
                self._writer.end()
            number = self.attached % 255 + 1
            self._pattern = bytes([number])
            self._is_frozen = False
            self._writer = Writer(host, info, self._offset, number)

    def wait_for_data(self) -> None:
        """Let the writer come so far that it writes, unless it lost its access before."""
        poll(lambda: self._read() == self._pattern * BLOCK, bool, timeout=LATE)

    def freeze(self) -> None:
        """Stop the writer, or let it go on if it is stopped."""
        self._is_frozen = not self._is_frozen
        self._send(signal.SIGSTOP if self._is_frozen else signal.SIGCONT)

    def thaw(self) -> None:
        """Let the writer go on."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self._writer:
                self._writer.send(number)

    def end(self) -> None:
        """End the writer."""
        with self._lock:
            if self._writer:
                self._writer.end()

    def check(self) -> None:
        """Check the mark."""
        with self._lock:
            if self._mark is not None:
                found = self._read()
                if found != self._mark:
                    moment = time.monotonic()
                    self.violations.append(
                        f"volume {self._volume} at {self._offset}: {found[:64]!r} instead of "
                        f"{self._mark[:64]!r} at {moment:.3f}"
                    )
                    self._mark = None

    def _remove_mark(self) -> None:
        self.check()
        self._mark = None

    def _write_mark(self, reason: str) -> None:
        if self._mark is not None:
            return
        found = self._read()
        self.marks_over_data += found == self._pattern * BLOCK
        text = f"{reason} at {time.monotonic():.3f} {uuid.uuid4()}"
        self._mark = text.encode().ljust(BLOCK, b".")
        self._storage.write(self._volume, self._offset, self._mark)

    def _read(self) -> bytes:
        return self._storage.read(self._volume, self._offset, BLOCK)


@full_only("races")
class SingleWriterTest(testtools.TestCase):
    """On tgtd: flooded by three hosts, the one OSD of a test's Ceph answers no reads in time."""

    def setUp(self):
        super().setUp()
        storage = self.useFixture(stored_volumes.TgtStorage(self))
        self.deployment = Deployment(self, "mariadb", backend=storage.backend, workers=1)
        self.deployment.configure(CONFIGURATION + storage.configuration)
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.volumes = [self.deployment.api.create_volume() for _ in range(VOLUMES)]
        self.hosts = [storage.host(f"host-{number}") for number in range(HOSTS)]
        self.places = {
            (host, volume): Place(storage, volume, number)
            for number, host in enumerate(self.hosts)
            for volume in self.volumes
        }
        for place in self.places.values():
            self.addCleanup(place.end)
        self.fence_locks = {host: threading.Lock() for host in self.hosts}
        self.current = {}
        self.ended = []

    def test_no_host_writes_after_its_access_has_ended(self):
        with futures.ThreadPoolExecutor(CLIENTS) as pool:
            for client in [pool.submit(self.run_client, number) for number in range(CLIENTS)]:
                client.result()
        places = self.places.values()
        for place in places:
            place.thaw()
        # Nothing shows that no host will send any more: they get the time to do so.
        time.sleep(LATE)
        for place in places:
            place.check()
        self.assertEqual([], [text for place in places for text in place.violations], f"{SEED=}")
        # Otherwise nothing was tested.
        self.assertLess(0, sum(place.marks_over_data for place in places))

    def run_client(self, number):
        """Send requests, each to a volume and for a host that are drawn."""
        draw = random.Random(f"{SEED} {number}")
        actions = {
            self.attach: 3,
            self.force_attach: 4,
            self.detach: 2,
            self.fence: 2,
            self.complete: 2,
            self.freeze: 2,
            self.kill_manager: 1,
        }
        for _ in range(REQUESTS // CLIENTS):
            (action,) = draw.choices([*actions], [*actions.values()])
            action(draw.choice(self.hosts), draw.choice(self.volumes))

    def request(self, method, path, body=None, **headers):
        """Send a request until it is answered finally."""

        def send():
            with contextlib.suppress(http.client.HTTPException, OSError):
                answer = self.deployment.api.request(
                    method, path, body, headers={**ATTACHD_1_1, **headers}
                )
                return answer if answer.status not in {500, 503, 504} else None
            return None

        return wait_until(send)

    def attach(self, host, volume, **more):
        """Attach a volume; no other host of it has access after a success.

        :returns: the status of the answer
        """
        place = self.places[host, volume]
        others = {
            other: other.token()
            for (_, its_volume), other in self.places.items()
            if its_volume == volume and other is not place
        }
        body = {"attachment": {"volume_uuid": volume, "connector": host.connector, **more}}
        with place.request_to_attach():
            key = {"Idempotency-Key": f"{uuid.uuid4()}"}
            answer = self.request("POST", "/attachments", body, **key)
            if answer.status == 200:
                made = answer.body["attachment"]
                for other, token in others.items():
                    other.silence(token, f"{made['id']} was attached")
                self.current[volume] = (made["id"], host)
                place.write(host, {"data": made["connection_info"]})
        if answer.status == 200:
            place.wait_for_data()
        else:
            self.assertIn(answer.status, {400, 404, 409}, answer)
            self.clean(volume)
        return answer.status

    def force_attach(self, host, volume):
        """Attach a volume instead of where it is attached."""
        old, _ = self.current.get(volume, (None, None))
        if old is None:
            self.attach(host, volume)
        else:
            self.attach(host, volume, instead_of=old)

    def clean(self, volume):
        """Delete what a refused request may have left."""
        path = f"/attachments/detail?volume_id={volume}"
        for item in self.request("GET", path).body["attachments"]:
            if item["status"] == "error_attaching":
                self.request("DELETE", f"/attachments/{item['id']}")

    def detach(self, _host, volume):
        """Detach a volume from where it is attached."""
        if volume not in self.current:
            return
        attachment, host = self.current[volume]
        place = self.places[host, volume]
        token = place.token()
        answer = self.request("DELETE", f"/attachments/{attachment}")
        if answer.status == 200:
            place.silence(token, f"{attachment} was detached")
            self.ended.append(attachment)
        else:
            self.assertIn(answer.status, {404, 409}, answer)

    def fence(self, host, volume):
        """Fence a host until nothing of it is left, try to attach it, and lift the fence."""
        name = host.connector["host"]
        places = [place for (its_host, _), place in self.places.items() if its_host is host]
        reason = {"fence": {"reason": "drawn"}}

        def fence():
            answer = self.request("POST", f"/hosts/{name}/fence", reason)
            if answer.status == 404:  # It has never been attached, or fenced.
                return answer
            results = {item["result"] for item in answer.body["fence"]["attachments"]}
            is_over = results <= {"proved"} and not answer.body["fence"]["host"]["attachment_ids"]
            return answer if is_over else None

        with self.fence_locks[host]:
            if wait_until(fence).status == 404:
                return
            for place in places:
                place.fence()
            self.assertNotEqual(200, self.attach(host, volume))
            for place in places:
                place.unfence()
            self.request("POST", f"/hosts/{name}/unfence", {"unfence": {}})

    def complete(self, _host, volume):
        """Complete an attachment, as an agent does, also one that was ended."""
        ended = self.ended[-1:]
        for attachment in [*ended, *self.current.get(volume, ())[:1]]:
            path = f"/attachments/{attachment}/action"
            answer = self.request("POST", path, {"os-complete": None})
            self.assertIn(answer.status, {404} if attachment in ended else {204, 400, 404, 409})

    def freeze(self, host, volume):
        """Stop a writer, or continue it."""
        self.places[host, volume].freeze()

    def kill_manager(self, _host, _volume):
        """Kill the workers of the manager, which its main process starts again."""
        for worker in child_pids(self.manager.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
