# SPDX-License-Identifier: Apache-2.0
"""Fenced virtual machines that write: without power, without network, and without message queue.

ATTACHD_TEST_ROUNDS=10 runs more rounds.
"""

import contextlib
import os
import random
import sys
import time

from attachd.tests.lab import deployment, guests

ROUNDS = int(os.environ.get("ATTACHD_TEST_ROUNDS", "2"))
MIB = 2**20
BLOCKS = 64 * MIB // guests.BLOCK
FAR = 512 * MIB
"""Where the second host writes: the first one does not come so far."""
LEASE = 60
"""Seconds: guests are slow, and their agents report six times meanwhile."""

_REPLACEMENT_TIMEOUT = (
    "sed -i 's/\\(replacement_timeout\\) = .*/\\1 = {seconds}/' /etc/iscsi/iscsid.conf"
)
_SHORT, _LONG = 15, 600


def read_blocks(path):
    """Return the blocks of a sparse file that were ever written, by their offsets."""
    found = {}
    with path.open("rb", buffering=0) as file:
        end = 0
        with contextlib.suppress(OSError):  # There is no data any more.
            while True:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA) // guests.BLOCK * guests.BLOCK
                end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
                data = os.pread(file.fileno(), end - start, start)
                for place in range(0, len(data), guests.BLOCK):
                    found[start + place] = data[place : place + guests.BLOCK]
    found.pop(FAR, None)
    return found


def show(text):
    """Print a figure."""
    sys.stdout.write(f"{text}\n")


class Case(deployment.AgentCase):
    """A service with tgtd, and two hosts with agents."""

    def start(self):
        self.service = deployment.LabDeployment(self)
        self.service.start(self.a)
        self.service.start(self.b)
        return self.service

    def flood(self, pattern, blocks=20):
        """Let the first host write, and wait until so many blocks have arrived."""
        flood = guests.Flood(self.a.guest, pattern, BLOCKS)
        deployment.wait_for(lambda: self.count_blocks(pattern) >= blocks or flood.error())
        self.assertEqual("", flood.error())
        return flood

    def count_blocks(self, pattern):
        """Count the blocks of a writer that have arrived."""
        beginning = pattern.to_bytes(8, "big")
        return sum(block[:8] == beginning for block in read_blocks(self.file).values())

    def write_at_other_host(self, pattern):
        """Attach the volume to the other host, write and read there; return the attachment."""
        attachment = self.service.attach(self.volume, self.b)
        data = pattern.to_bytes(guests.BLOCK, "big")
        self.b.guest.write(FAR, data)
        self.assertEqual(data, self.b.guest.read(FAR, guests.BLOCK))
        return attachment

    def wait_until_empty(self, host):
        """Wait until the agent of a host has removed what was fenced."""

        def is_empty():
            with contextlib.suppress(AssertionError):
                self.assert_has_nothing(host)
                return True

        deployment.wait_for(is_empty)


class FencedHostTest(Case):
    """A host that writes, and loses its power or its network."""

    def test_nothing_of_host_without_power_or_cable_arrives_after_proof(self):
        service = self.start()
        self.volume = service.api.create_volume()
        self.file = service.file(self.volume)
        draw = random.Random(20)
        for number in range(ROUNDS):
            lose, get_back = (
                (self.a.guest.cut_off, self.plug_in),
                (self.a.guest.crash, self.boot_again),
            )[number % 2]
            self.run_round(number + 1, draw.randrange(1, 200), lose, get_back)
        self.assert_nothing_is_left(service, self.volume)

    def run_round(self, pattern, blocks, lose, get_back):
        service = self.service
        old = service.attach(self.volume, self.a)
        flood = self.flood(pattern, blocks)
        lose()
        began = time.monotonic()
        (result,) = service.fence(self.a)
        seconds = time.monotonic() - began
        before = read_blocks(self.file)
        self.assertEqual((old["id"], "proved"), (result["attachment_id"], result["result"]))
        new = self.write_at_other_host(pattern)
        get_back(flood)
        self.wait_until_empty(self.a)
        self.assertEqual(before, read_blocks(self.file), f"round {pattern}")
        proof = service.proof(old)
        self.assertEqual("proved", proof["result"])
        show(
            f"round {pattern}: {self.count_blocks(pattern)} blocks, "
            f"{lose.__name__}, fenced in {seconds:.2f} s, proof at {proof['observed_at'][-1]}"
        )
        service.detach(new)
        deployment.wait_for(lambda: not service.is_fenced(self.a))
        service.wait_until_alive(self.a)

    def plug_in(self, flood):
        """Connect the host again; its writer gets an error, and the fence is lifted by hand."""
        self.a.guest.plug_in()
        show(f"the writer: {flood.wait_for_error()}")
        self.wait_until_empty(self.a)
        self.assertTrue(self.service.is_fenced(self.a))
        self.service.unfence(self.a)

    def boot_again(self, _flood):
        """Start the host again; its agent reports that, which lifts the fence."""
        self.a.guest.boot()
        self.a.start()


class LeaseTest(Case):
    """A host whose lease ends stops its writers by itself."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.set_replacement_timeout, _SHORT)

    def set_replacement_timeout(self, seconds):
        """Set for how long open-iscsi waits for a lost session before requests fail."""
        self.a.guest.run(_REPLACEMENT_TIMEOUT.format(seconds=seconds))

    def start_with_lease(self):
        """Attach a volume with a lease to a host that writes to it."""
        service = self.start()
        specs = {"on_lost_agent": "fence", "lost_agent_timeout": f"{LEASE}"}
        kind = {"name": "leased", "extra_specs": specs}
        service.api.request_json("POST", "/types", {"volume_type": kind})
        self.volume = service.api.create_volume(volume_type="leased")
        self.file = service.file(self.volume)
        self.attachment = service.attach(self.volume, self.a)
        self.disk = self.a.guest.path.rpartition("/")[2]
        deployment.wait_for_lease(service, self.a, LEASE)
        return service, self.flood(1)

    def test_agent_without_queue_stops_writer_before_fence(self):
        service, flood = self.start_with_lease()
        began = time.monotonic()
        service.queue.refuse()
        error = flood.wait_for_error()
        stopped = time.monotonic()
        self.assertFalse(service.is_fenced(self.a))
        state = self.a.guest.run(f"cat /sys/block/{self.disk}/device/state").decode().strip()
        self.assertEqual("offline", state)
        before = read_blocks(self.file)
        deployment.wait_for(lambda: service.is_fenced(self.a))
        show(
            f"stopped after {stopped - began:.1f} s, fenced after "
            f"{time.monotonic() - began:.1f} s, lease {LEASE} s; {error}"
        )
        # The other agent is cut off as well.
        service.queue.pass_on()
        service.wait_until_alive(self.b)
        new = deployment.wait_until_not_none(self.try_other_host)
        self.wait_until_empty(self.a)
        self.assertIn("is fenced since", self.a.messages())
        self.assertEqual(before, read_blocks(self.file))
        service.detach(new)

    def try_other_host(self):
        """Attach the volume to the other host and write there; None: it is refused yet."""
        if self.service.attachments_of(self.volume):
            return None
        return self.write_at_other_host(2)

    def test_agent_without_cable_stops_writer_of_lost_session(self):
        self.set_replacement_timeout(_SHORT)
        self.check_agent_without_cable()

    def test_agent_without_cable_stops_waiting_writer(self):
        self.set_replacement_timeout(_LONG)
        self.check_agent_without_cable()

    def check_agent_without_cable(self):
        service, flood = self.start_with_lease()
        began = time.monotonic()
        self.a.guest.cut_off()
        self.addCleanup(self.a.guest.plug_in)
        deployment.wait_for(lambda: service.is_fenced(self.a))
        show(f"fenced after {time.monotonic() - began:.1f} s, lease {LEASE} s")
        new = deployment.wait_until_not_none(self.try_other_host)
        before = read_blocks(self.file)
        self.a.guest.plug_in()
        show(flood.wait_for_error())
        self.wait_until_empty(self.a)
        self.assertEqual(before, read_blocks(self.file))
        messages = self.a.messages()
        show(messages)
        self.assertIn("all writers are stopped", messages)
        self.assertNotIn("writers are not stopped", messages)
        service.detach(new)
