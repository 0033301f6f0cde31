# SPDX-License-Identifier: Apache-2.0
"""Tests that nothing of a frozen writer arrives once its attachment or its host is fenced.

A real tgtd or Ceph, MariaDB, RabbitMQ, a manager process that is killed in every second round, and
hosts with initiators of their own.  Two rounds force an attach, the next two fence the host.
ATTACHD_TEST_ROUNDS=200 runs more rounds.
"""

import contextlib
import http.client
import os
import random
import signal
import threading

import testtools

from attachd.tests.fixtures import initiators, stored_volumes
from attachd.tests.fixtures.api_context import new_id
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.fixtures.processes import child_pids
from attachd.tests.fixtures.stored_volumes import BLOCK
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

ROUNDS = int(os.environ.get("ATTACHD_TEST_ROUNDS", "4"))
MIB = 2**20
ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
FAR = 512 * MIB
"""Where the second host writes: the first one does not come so far."""


@full_only("crash")
class FrozenTgtWriterTest(testtools.TestCase):
    """On tgtd, whose initiators try to log in again for ever.

    :cvar reach: up to where a writer comes, in bytes
    :cvar longest: until a manager is killed in the middle of its work, in seconds
    """

    storage_class: type[stored_volumes.Storage] = stored_volumes.TgtStorage
    reach = 32 * MIB
    longest = 0.1

    def setUp(self):
        super().setUp()
        self.storage = self.useFixture(self.storage_class(self))
        self.deployment = Deployment(self, "mariadb", backend=self.storage.backend, workers=1)
        self.deployment.configure(self.storage.configuration)
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.frozen, self.other = map(self.storage.host, ("frozen", "other"))
        self.random = random.Random(20)
        # A request whose answer is lost may have attached: it is repeated under its key.
        self.key = new_id()
        self.volume = self.deployment.api.create_volume()

    def request(self, method, path, body=None, **headers):
        """Send a request; return None if there is no answer."""
        with contextlib.suppress(http.client.HTTPException, OSError):
            return self.deployment.api.request(
                method, path, body, headers={**ATTACHD_1_1, **headers}
            )
        return None

    def attach(self, host, **more):
        """Attach the volume to a host; return id and connection, or None: repeat the request."""
        body = {"attachment": {"volume_uuid": self.volume, "connector": host.connector, **more}}
        answer = self.request("POST", "/attachments", body, **{"Idempotency-Key": self.key})
        if answer is None:
            return None
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

    def kill_manager_soon(self):
        timer = threading.Timer(self.random.uniform(0, self.longest), self.kill_manager)
        timer.start()
        self.addCleanup(timer.join)

    def freeze_while_writing(self, info, pattern):
        """Start a writer, and stop it after a drawn number of blocks."""
        writer = self.frozen.flood(info, FAR // BLOCK, pattern)
        place = self.random.randrange(BLOCK, self.reach, BLOCK)

        def is_reached():
            return self.storage.read(self.volume, place, 1) == bytes([pattern])

        wait_until(lambda: is_reached() or writer.poll() is not None, interval=0.001)
        writer.send_signal(signal.SIGSTOP)
        self.assertIsNone(writer.poll(), "the writer has ended before it could be frozen")
        return writer

    def fence_host(self):
        """Fence the host of the writer, and repeat the request until nothing of it is left."""

        def is_fenced():
            reason = {"fence": {"reason": "frozen"}}
            answer = self.request("POST", "/hosts/frozen/fence", reason)
            if answer is None or answer.status != 200:
                return False
            fence = answer.body["fence"]
            results = {item["result"] for item in fence["attachments"]}
            self.assertLessEqual(results, {"proved", "pending", "failed"})
            return results <= {"proved"} and not fence["host"]["attachment_ids"]

        wait_until(is_fenced)

    def replace(self, old, *, fence, kill):
        """Attach the volume to the other host instead, and repeat the request until it is.

        :param fence: whether the host is fenced before, instead of the attachment by the request
        :param kill: whether a manager is killed meanwhile
        """
        if kill:
            self.kill_manager_soon()
        if fence:
            self.fence_host()
        more = {} if fence else {"instead_of": old}
        return wait_until(lambda: self.attach(self.other, **more))

    def test_no_block_of_a_frozen_writer_arrives_after_the_proof(self):
        for number in range(ROUNDS):
            self.run_round(number, number % 255 + 1)

    def run_round(self, number, pattern):
        fence = number % 4 > 1
        old, connection = wait_until(lambda: self.attach(self.frozen))
        client = self.storage.client(self.frozen, old)
        writer = self.freeze_while_writing(connection, pattern)
        new, connection = self.replace(old, fence=fence, kill=number % 2 == 1)
        before = self.written_blocks()
        writer.send_signal(signal.SIGCONT)
        self.other.write(connection, FAR, bytes([pattern]) * BLOCK)
        # It has had the chance to send what it had queued, and to log in again.
        self.assertIn(pattern, self.other.read(connection, FAR, BLOCK))
        self.wait_for_writer(writer)
        self.assertNotIn(client, self.storage.clients(self.volume))
        writer.kill()
        writer.wait()
        changed = stored_volumes.changed_blocks(before, self.written_blocks())
        self.assertEqual([], changed, f"round {number}")
        self.assertEqual("proved", self.proof(old)["result"])
        if fence:
            self.assertEqual(
                200, self.request("POST", "/hosts/frozen/unfence", {"unfence": {}}).status
            )
        self.detach(new)

    def wait_for_writer(self, writer):
        """Do nothing: it never ends."""

    def written_blocks(self):
        """Return the blocks on the storage without those of the second host."""
        blocks = self.storage.written_blocks(self.volume)
        return {place: block for place, block in blocks.items() if place < FAR}

    def proof(self, attachment_id):
        answer = self.request("GET", f"/attachments/{attachment_id}/timeline")
        (event,) = [event for event in answer.body["timeline"] if event["type"] == "fenced"][-1:]
        return event["proof"]

    def detach(self, attachment_id):
        def is_detached():
            answer = self.request("DELETE", f"/attachments/{attachment_id}")
            return answer is not None and answer.status in {200, 404}

        wait_until(is_detached)


class FrozenSourceTest(FrozenTgtWriterTest):
    """On tgtd, where the writer is the source of a move."""

    def run_round(self, number, pattern):
        old, connection = wait_until(lambda: self.attach(self.frozen))
        new, reading = wait_until(lambda: self.attach(self.other, move_from=old))
        writing = {"data": {**reading["data"], "access_mode": "rw"}}
        data = bytes([pattern]) * BLOCK
        self.assertRaises(initiators.Refused, self.other.write, writing, FAR, data)
        client = self.storage.client(self.frozen, old)
        writer = self.freeze_while_writing(connection, pattern)
        self.finish(new, kill=number % 2 == 1)
        before = self.written_blocks()
        writer.send_signal(signal.SIGCONT)
        self.other.write(writing, FAR, data)
        self.assertEqual(data, self.other.read(writing, FAR, BLOCK))
        self.assertNotIn(client, self.storage.clients(self.volume))
        writer.kill()
        writer.wait()
        changed = stored_volumes.changed_blocks(before, self.written_blocks())
        self.assertEqual([], changed, f"round {number}")
        self.assertEqual("proved", self.proof(old)["result"])
        self.detach(new)

    def finish(self, attachment_id, *, kill):
        """Finish a move, and repeat the request until it is done."""
        if kill:
            self.kill_manager_soon()
        path = f"/attachments/{attachment_id}/action"

        def is_finished():
            answer = self.request("POST", path, {"finish_move": {}})
            if answer is None:
                return False
            self.assertIn(answer.status, {200, 409, 500, 503, 504}, answer.body)
            return answer.status == 200

        wait_until(is_finished)


class FrozenRbdWriterTest(FrozenTgtWriterTest):
    """On Ceph, whose clients end once the cluster refuses them."""

    storage_class = stored_volumes.RbdStorage
    reach = 4 * MIB
    longest = 1.5

    def wait_for_writer(self, writer):
        """Wait until the cluster has refused a write that was continued."""
        wait_until(lambda: writer.poll() is not None)
