# SPDX-License-Identifier: Apache-2.0
"""Two real hosts with os-brick on one volume, through the API and over iSCSI."""

import http.client
import secrets
import uuid

import testtools

from attachd.drivers.tgt import parser
from attachd.tests.fixtures import deployments, http_client, tgtd
from attachd.tests.lab import guests

MIB = 2**20

SETTINGS = """\
[DEFAULT]
enabled_backends = tgt
[manager]
report_interval = 1
[tgt]
driver = tgt
"""

# SCSI commands that change a disk, each for its first block, with what they write.
BLOCK_WRITES = {
    "WRITE(10)": "2a 00 00 00 00 00 00 00 01 00",
    "WRITE(16)": "8a 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00",
    "WRITE AND VERIFY(10)": "2e 00 00 00 00 00 00 00 01 00",
    "WRITE SAME(10)": "41 00 00 00 00 00 00 00 01 00",
    "WRITE SAME(16)": "93 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00",
}


class Attachment:
    """A volume that a guest has, by one attachment."""

    def __init__(self, api, guest, attachment_id, info):
        self._api, self._guest = api, guest
        self.id = attachment_id
        self.info = {"driver_volume_type": info["driver_volume_type"], "data": info}
        self.mode = info["access_mode"]

    def detach(self):
        """Disconnect the volume in the guest, and then at the backend, as Nova does."""
        self._guest.detach(self.info)
        self.delete()

    def delete(self):
        """Delete it by force."""
        self._api.request_json("DELETE", f"/attachments/{self.id}")


class Case(testtools.TestCase):
    """Two guests, for all tests of a class; tgtd and attachd, for each test."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a, cls.b = guests.boot(cls, hosts=2)

    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        port = self.tgtd.portal.rpartition(":")[2]
        options = {**self.tgtd.options, "tgt_portal": f"{guests.MACHINE}:{port}"}
        served = deployments.AllInOne.configured(
            self, SETTINGS + "".join(f"{key} = {value}\n" for key, value in options.items())
        )
        served.show_in_failures(self)
        self.api = http_client.Client(f"{served.url}/v3")
        for guest in (self.a, self.b):
            self.addCleanup(guest.forget)

    def create_volume(self, **more):
        """Make a volume of a type that allows several hosts."""
        kind = {"name": "shared", "extra_specs": {"multiattach": "<is> True", **more}}
        self.api.request_json("POST", "/types", {"volume_type": kind})
        volume = self.api.create_volume(volume_type="shared")
        self.assertTrue(self.api.volume(volume)["multiattach"])
        return volume

    def attach(self, volume, guest, **wanted):
        """Attach a volume to a server on a guest, as Nova does."""
        body = {"volume_uuid": volume, "instance_uuid": f"{uuid.uuid4()}", **wanted}
        made = self.api.request_json("POST", "/attachments", {"attachment": body})["attachment"]
        path = f"/attachments/{made['id']}"
        body = {"attachment": {"connector": guest.connector}}
        info = self.api.request_json("PUT", path, body)["attachment"]["connection_info"]
        attachment = Attachment(self.api, guest, made["id"], info)
        guest.attach(attachment.info)
        self.api.request_json("POST", f"{path}/action", {"os-complete": {}})
        return attachment

    def sessions(self, guest):
        """List the connections of a guest, as tgtd sees them; a new one has another number."""
        return [
            (target.tid, connection.sid, connection.cid)
            for target in self.tgtd.targets()
            for connection in parser.connections(
                self.tgtd.adm("--op", "show", "--mode", "conn", "--tid", f"{target.tid}")
            )
            if connection.initiator == guest.connector["initiator"]
        ]

    def assert_hosts(self, volume, *expected):
        """Check that the API and the target have the same hosts, with one session each."""
        shown = self.api.volume(volume)
        names = sorted(attachment["host_name"] for attachment in shown["attachments"])
        self.assertEqual(sorted(guest.connector["host"] for guest in expected), names)
        self.assertEqual("in-use" if expected else "available", shown["status"])
        for guest in (self.a, self.b):
            self.assertEqual(int(guest in expected), len(self.sessions(guest)), guest.name)

    def assert_reads(self, guest, offset, data):
        self.assertEqual(data, guest.read(offset, len(data)))

    def assert_is_read_only(self, guest):
        """Check that neither the kernel nor the target permits writes of a guest."""
        self.assertEqual(b"1", guest.run(f"blockdev --getro {guest.path}").strip())
        before = guest.read(0, guests.BLOCK)
        self.assertRaises(guests.Failed, guest.write, 0, b"\1" * guests.BLOCK)
        # What root can do about the kernel's own refusal.
        guest.run(f"blockdev --setrw {guest.path} || true")
        self.assertRaises(guests.Failed, guest.write, 0, b"\2" * guests.BLOCK)
        for name, command in BLOCK_WRITES.items():
            refusal = self.assertRaises(
                guests.Failed,
                guest.run,
                f"sg_raw --readonly --send=512 {guest.path} {command}",
                b"\3" * 512,
            )
            self.assertIn("Data Protect", f"{refusal}", name)
        self.assert_reads(guest, 0, before)

    def assert_nothing_is_left(self, volume):
        self.assert_hosts(volume)
        self.api.request_json("DELETE", f"/volumes/{volume}")
        self.api.wait_for(volume, "gone")
        self.assertEqual([], self.tgtd.orphans())
        for guest in (self.a, self.b):
            self.assertEqual(([], []), (guest.sessions(), guest.devices()), guest.name)


class TwoHostsTest(Case):
    """Access of two hosts to one volume, and their effects on each other."""

    def test_writers_share_blocks_and_one_continues_after_detach(self):
        volume = self.create_volume()
        first, second = self.attach(volume, self.a), self.attach(volume, self.b)
        self.assert_hosts(volume, self.a, self.b)
        ours, theirs = secrets.token_bytes(MIB), secrets.token_bytes(MIB)
        # Each has the other's place in its cache.
        for guest in (self.a, self.b):
            guest.run(f"dd if={guest.path} bs=1M count=16 of=/dev/null status=none")
        self.a.write(4 * MIB, ours)
        self.b.write(8 * MIB, theirs)
        self.assert_reads(self.a, 8 * MIB, theirs)
        self.assert_reads(self.b, 4 * MIB, ours)

        writer = guests.Writer(self, self.a, 12 * MIB)
        session = self.sessions(self.a)
        second.detach()
        writer.go_on()
        self.assert_hosts(volume, self.a)
        self.assertEqual(session, self.sessions(self.a))
        self.assertEqual([], self.b.devices())
        self.assertGreater(writer.end(), 0)
        first.detach()
        self.assert_nothing_is_left(volume)

    def test_reader_cannot_write_and_reads_new_blocks_of_writer(self):
        volume = self.create_volume()
        first, second = self.attach(volume, self.a), self.attach(volume, self.b, mode="ro")
        self.assertEqual(("rw", "ro"), (first.mode, second.mode))
        self.assert_hosts(volume, self.a, self.b)
        self.assertEqual(b"0", self.a.run(f"blockdev --getro {self.a.path}").strip())
        writer = guests.Writer(self, self.a, 12 * MIB)
        self.assert_is_read_only(self.b)
        writer.go_on()
        last = writer.end()
        place = 12 * MIB + (last - 1) % 256 * guests.BLOCK
        self.assert_reads(self.b, place, last.to_bytes(8, "big") + bytes(guests.BLOCK - 8))
        first.detach()
        second.detach()
        self.assert_nothing_is_left(volume)

    def test_one_writer_type_makes_second_host_a_reader(self):
        volume = self.create_volume(mode="RO")
        first, second = self.attach(volume, self.a), self.attach(volume, self.b)
        self.assertEqual(("rw", "ro"), (first.mode, second.mode))
        self.assert_is_read_only(self.b)
        data = secrets.token_bytes(MIB)
        self.a.write(4 * MIB, data)
        self.assert_reads(self.b, 4 * MIB, data)

        second.detach()
        body = {"volume_uuid": volume, "mode": "rw", "connector": self.b.connector}
        refused = self.api.request("POST", "/attachments", {"attachment": body})
        self.assertEqual(http.client.BAD_REQUEST, refused.status)
        self.assertIn(first.id, refused.message)
        first.detach()
        second = self.attach(volume, self.b)
        self.assertEqual("rw", second.mode)
        self.b.write(4 * MIB, data[::-1])
        self.assert_reads(self.b, 4 * MIB, data[::-1])
        second.detach()
        self.assert_nothing_is_left(volume)

    def test_host_without_network_is_evicted_while_other_writes(self):
        volume = self.create_volume()
        first, second = self.attach(volume, self.a), self.attach(volume, self.b)
        writer, late = guests.Writer(self, self.a, 12 * MIB), guests.Writer(self, self.b, 0)
        session = self.sessions(self.a)
        self.b.cut_off()
        self.addCleanup(self.b.plug_in)
        # The target has not noticed anything.
        self.assertEqual(1, len(self.sessions(self.b)))
        second.delete()
        self.assert_hosts(volume, self.a)
        written = self.a.read(0, MIB)
        self.b.plug_in()
        # Neither what it had under way nor what it tries anew arrives.
        self.assertIn("OSError", f"{self.assertRaises(guests.Failed, late.end)}")
        self.assert_reads(self.a, 0, written)
        self.assert_hosts(volume, self.a)
        writer.go_on()
        self.assertEqual(session, self.sessions(self.a))
        self.assertGreater(writer.end(), 0)
        # os-brick removes the device, and then reports that it could not be flushed.
        complaint = self.assertRaises(guests.Failed, self.b.detach_by_force, second.info)
        self.assertIn("--flushbufs", f"{complaint}")
        first.detach()
        self.assert_nothing_is_left(volume)

    def test_host_without_power_is_evicted_and_returns_without_device(self):
        volume = self.create_volume()
        first, second = self.attach(volume, self.a), self.attach(volume, self.b)
        writer = guests.Writer(self, self.a, 12 * MIB)
        session = self.sessions(self.a)
        self.b.crash()
        self.addCleanup(self.b.forget)
        second.delete()
        self.assert_hosts(volume, self.a)
        self.b.boot()
        self.assertEqual(([], []), (self.b.sessions(), self.b.devices()))
        writer.go_on()
        self.assertEqual(session, self.sessions(self.a))
        self.assertGreater(writer.end(), 0)
        again = self.attach(volume, self.b, mode="ro")
        self.assertEqual(1, int.from_bytes(self.b.read(12 * MIB, guests.BLOCK)[:8], "big") % 256)
        again.detach()
        first.detach()
        self.assert_nothing_is_left(volume)
