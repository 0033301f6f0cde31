# SPDX-License-Identifier: Apache-2.0
"""Tests that nothing of a frozen writer arrives once its attachment is fenced.

A real tgtd, MariaDB, RabbitMQ, a manager process that is killed in every second round, and hosts
with initiators of their own.  ATTACHD_TEST_ROUNDS=200 runs more rounds.
"""

import contextlib
import http.client
import os
from pathlib import Path
import random
import signal
import threading

import testtools

from attachd.tests.fixtures import initiators, tgtd
from attachd.tests.fixtures.api_context import new_id
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.fixtures.processes import child_pids
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

ROUNDS = int(os.environ.get("ATTACHD_TEST_ROUNDS", "4"))
MIB = 2**20
GIB = 2**30
BLOCK = 4096
FENCING = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
FAR = 512 * MIB
"""Where the second host writes: the first one does not come so far."""


def read_blocks(path):
    """Return the blocks of a sparse file that were ever written, by their offsets."""
    found = {}
    with Path(path).open("rb", buffering=0) as file:
        end = 0
        with contextlib.suppress(OSError):  # There is no data any more.
            while True:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA) // BLOCK * BLOCK
                end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
                data = os.pread(file.fileno(), end - start, start)
                for place in range(0, len(data), BLOCK):
                    found[start + place] = data[place : place + BLOCK]
    return found


def changed(before, after):
    """Return the offsets of the blocks that differ, and were not written by the other host."""
    empty = bytes(BLOCK)
    return [
        place
        for place in sorted((before.keys() | after.keys()) - {FAR})
        if before.get(place, empty) != after.get(place, empty)
    ]


@full_only("crash")
class FrozenWriterTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.deployment = Deployment(self, "mariadb", backend="tgt", workers=1)
        self.deployment.configure(self.tgtd.configuration)
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.api = self.deployment.api
        self.frozen = self.useFixture(initiators.IscsiHost(self, "frozen"))
        self.other = self.useFixture(initiators.IscsiHost(self, "other"))
        self.random = random.Random(20)
        # A request whose answer is lost may have attached: it is repeated under its key.
        self.key = new_id()
        self.volume = self.api.create_volume()
        self.file = Path(self.tgtd.options["tgt_volumes_dir"]) / self.volume

    def attach(self, host, **more):
        """Attach the volume to a host; return id and connection, or None: repeat the request."""
        body = {"attachment": {"volume_uuid": self.volume, "connector": host.connector, **more}}
        headers = FENCING | {"Idempotency-Key": self.key}
        with contextlib.suppress(http.client.HTTPException, OSError):
            answer = self.deployment.api.request("POST", "/attachments", body, headers=headers)
            if answer.status == 200:
                self.key = new_id()
                made = answer.body["attachment"]
                return made["id"], {"data": made["connection_info"]}
            self.assertIn(answer.status, {409, 500, 503, 504}, answer.body)
            if answer.status == 409:
                self.key = new_id()  # This refusal is the final answer to its key.
        return None

    def kill_manager(self):
        for worker in child_pids(self.manager.pid):
            os.kill(worker, signal.SIGKILL)

    def freeze_while_writing(self, info, pattern):
        """Start a writer, and stop it after a drawn number of blocks."""
        writer = self.frozen.flood(info, FAR // BLOCK, pattern)
        place = self.random.randrange(BLOCK, 32 * MIB, BLOCK)

        def is_reached():
            with self.file.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), 1, place) == bytes([pattern])

        wait_until(lambda: is_reached() or writer.poll() is not None, interval=0.001)
        writer.send_signal(signal.SIGSTOP)
        self.assertIsNone(writer.poll(), "the writer has ended before it could be frozen")
        return writer

    def replace(self, old, *, kill):
        """Attach the volume to the other host instead, and repeat the request until it is."""
        if kill:
            timer = threading.Timer(self.random.uniform(0, 0.1), self.kill_manager)
            timer.start()
            self.addCleanup(timer.join)
        made = []
        wait_until(
            lambda: made.append(self.attach(self.other, instead_of=old)) or made[-1] is not None
        )
        return made[-1]

    def test_no_block_of_a_frozen_writer_arrives_after_the_proof(self):
        for number in range(ROUNDS):
            pattern = number % 255 + 1
            old, connection = self.attach(self.frozen)
            writer = self.freeze_while_writing(connection, pattern)
            new, connection = self.replace(old, kill=number % 2 == 1)
            before = read_blocks(self.file)
            writer.send_signal(signal.SIGCONT)
            self.other.write(connection, FAR, bytes([pattern]) * BLOCK)
            # It has had the chance to send what it had queued, and to log in again.
            self.assertIn(pattern, self.other.read(connection, FAR, BLOCK))
            self.assertEqual([], self.sessions_of(self.frozen))
            writer.kill()
            writer.wait()
            self.other.write(connection, FAR, bytes(BLOCK))
            self.assertEqual([], changed(before, read_blocks(self.file)), f"round {number}")
            proof = self.timeline(old)
            self.assertEqual("proved", proof["result"])
            self.detach(new)

    def test_no_block_of_a_frozen_writer_arrives_after_its_move_is_finished(self):
        for number in range(ROUNDS):
            pattern = number % 255 + 1
            old, connection = self.attach(self.frozen)
            new, reading = self.attach(self.other, move_from=old)
            writing = {"data": {**reading["data"], "access_mode": "rw"}}
            data = bytes([pattern]) * BLOCK
            with self.assertRaises(initiators.Refused):
                self.other.write(writing, FAR, data)
            writer = self.freeze_while_writing(connection, pattern)
            self.finish(new, kill=number % 2 == 1)
            before = read_blocks(self.file)
            writer.send_signal(signal.SIGCONT)
            self.other.write(writing, FAR, data)
            self.assertEqual(data, self.other.read(writing, FAR, BLOCK))
            self.assertEqual([], self.sessions_of(self.frozen))
            writer.kill()
            writer.wait()
            self.other.write(writing, FAR, bytes(BLOCK))
            self.assertEqual([], changed(before, read_blocks(self.file)), f"round {number}")
            self.assertEqual("proved", self.timeline(old)["result"])
            self.detach(new)

    def finish(self, attachment_id, *, kill):
        """Finish a move, and repeat the request until it is done."""
        if kill:
            timer = threading.Timer(self.random.uniform(0, 0.1), self.kill_manager)
            timer.start()
            self.addCleanup(timer.join)
        path, body = f"/attachments/{attachment_id}/action", {"finish_move": {}}

        def is_finished():
            with contextlib.suppress(http.client.HTTPException, OSError):
                answer = self.deployment.api.request("POST", path, body, headers=FENCING)
                self.assertIn(answer.status, {200, 409, 500, 503, 504}, answer.body)
                return answer.status == 200
            return False

        wait_until(is_finished)

    def sessions_of(self, host):
        name = host.connector["initiator"]
        return [session for session in self.tgtd.sessions() if name in f"{session}"]

    def timeline(self, attachment_id):
        path = f"/attachments/{attachment_id}/timeline"
        answer = self.deployment.api.request("GET", path, headers=FENCING)
        (event,) = [event for event in answer.body["timeline"] if event["type"] == "fenced"][-1:]
        return event["proof"]

    def detach(self, attachment_id):
        wait_until(
            lambda: (
                self.deployment.api.request("DELETE", f"/attachments/{attachment_id}").status
                in {200, 404}
            )
        )
