# SPDX-License-Identifier: Apache-2.0
"""Tests of read-only and writable access with real data and raw SCSI commands, behind the API."""

import hashlib
import itertools
import uuid

from attachd.tests.fixtures import initiators, scsi, tgtd
from attachd.tests.functional.multiattach_case import MultiattachCase, serve_backend
from attachd.tests.selection import full_only

MIB = 2**20

WAYS = {
    "asked": ({}, {"mode": "ro"}),
    "said by its connector": ({}, {"connector": {"mode": "ro"}}),
    "of its type": ({"mode": "RO"}, {}),
}
"""How a host comes to read only, beside one that writes: extra specs, and what is asked for."""

NEITHER = frozenset({"COMPARE AND WRITE"})
"""Commands that these targets do not support."""


_started: list[tgtd.Tgtd] = []


def start(lasting, _folder):
    """Start the tgtd of this process, and return the options that lead to it."""
    made = tgtd.Tgtd(lasting)
    lasting.addCleanup(made.cleanUp)
    made.setUp()
    _started[:] = [made]
    return made.options


class IscsiCase(MultiattachCase):
    """tgtd, and two hosts with initiators of their own."""

    def setUp(self):
        super().setUp()
        self.api = serve_backend(self, "tgt", start)
        self.tgtd = _started[0]
        self.a = self.useFixture(initiators.IscsiHost(self, "host-a"))
        self.b = self.useFixture(initiators.IscsiHost(self, "host-b"))

    def log_in(self, info, host):
        return scsi.Session(self, info, host.connector)

    def assert_out(self, info, host):
        """Expect that a host cannot log in."""
        self.assertRaises(initiators.Refused, self.log_in, info, host)

    def with_reader(self, method="asked"):
        """Return a volume and the connection info of a writer and of a reader."""
        specs, asked = WAYS[method]
        volume = self.create_multiattach_volume(**specs)
        writer, reader = self.attach(volume, self.a), self.attach(volume, self.b, **asked)
        self.assertEqual(["rw", "ro"], [self.mode(item) for item, _ in (writer, reader)])
        return volume, writer, reader


class WritersTest(IscsiCase):
    """Hosts that all write."""

    def test_multiattach_volume_with_two_writers_shows_writes_of_the_other(self):
        volume = self.create_multiattach_volume()
        first, info_a = self.attach(volume, self.a)
        second, info_b = self.attach(volume, self.b)
        self.assertEqual({"rw"}, {self.mode(first), self.mode(second)})
        a, b = self.log_in(info_a, self.a), self.log_in(info_b, self.b)
        for round_ in range(1, 20):
            a.write(2 * round_, bytes([round_]) * 512)
            b.write(2 * round_ + 1, bytes([100 + round_]) * 512)
            both = bytes([round_]) * 512 + bytes([100 + round_]) * 512
            self.assertEqual([both] * 2, [a.read(2 * round_, 2), b.read(2 * round_, 2)])
        self.a.write(info_a, 5 * MIB, b"from a" * 512)
        self.b.write(info_b, 6 * MIB, b"from b" * 512)
        self.assertEqual(b"from a" * 512, self.b.read(info_b, 5 * MIB, 3072))
        self.assertEqual(b"from b" * 512, self.a.read(info_a, 6 * MIB, 3072))

    def test_detach_of_one_writer_causes_no_error_at_the_other(self):
        volume = self.create_multiattach_volume()
        first, info_a = self.attach(volume, self.a)
        second, info_b = self.attach(volume, self.b)
        going = scsi.Writer(self, self.log_in(info_a, self.a))
        staying = scsi.Writer(self, self.log_in(info_b, self.b), range(2000, 2064))
        for item in (going, staying):
            item.go_on()
        self.detach(first)
        self.assertIsInstance(going.fail(), initiators.Refused)
        self.assert_out(info_a, self.a)
        staying.go_on(200)
        third, info_a = self.attach(volume, self.a)
        scsi.Writer(self, self.log_in(info_a, self.a)).go_on()
        staying.go_on()
        self.detach(second)
        self.assertIsInstance(staying.fail(), initiators.Refused)
        self.detach(third)
        self.assertEqual([], [target for target in self.tgtd.targets() if volume in target.name])
        self.assertEqual(set(), {first, second, third} & set(self.tgtd.accounts()))

    def test_force_detach_during_writes_ends_access(self):
        volume = self.create_multiattach_volume()
        first, info_a = self.attach(volume, self.a)
        _second, info_b = self.attach(volume, self.b, "ro")
        _third, info_c = self.attach(volume, self.b)
        going = scsi.Writer(self, self.log_in(info_a, self.a))
        staying = scsi.Writer(self, self.log_in(info_c, self.b), range(2000, 2064))
        reader = self.log_in(info_b, self.b)
        for item in (going, staying):
            item.go_on()
        self.api.request_json(
            "POST", f"/volumes/{volume}/action", {"os-force_detach": {"attachment_id": first}}
        )
        self.assertIsInstance(going.fail(), initiators.Refused)
        self.assert_out(info_a, self.a)
        staying.go_on()
        reader.read(2000, 64)
        self.assertEqual("in-use", self.api.volume(volume)["status"])


@full_only("storage")
class EachOpcodeTest(IscsiCase):
    """A host that only reads sends each command, beside one that writes all the time."""

    def test_no_opcode_of_a_reader_in_any_direction_has_an_effect(self):
        """Each opcode, with and without flags, says that data goes nowhere, out, or in."""
        _volume, (_, info_a), (_, info_b) = self.with_reader()
        a, b = self.log_in(info_a, self.a), self.log_in(info_b, self.b)
        a.write(0, b"7" * 512 * 64)
        before = hashlib.sha256(a.read(0, 64)).digest()
        writer = scsi.Writer(self, self.log_in(info_a, self.a))
        effects, sessions = [], 1
        for opcode, action in itertools.product(range(256), (0, 1, 8, 0x10, 0x1F)):
            cdb = scsi.any_command(opcode, action, 7)
            for data, wanted in ((b"", 0), (b"x" * 512, 0), (b"x" * 1024, 0), (b"", 512)):
                try:
                    b.send(cdb, data, wanted)
                except initiators.Refused:  # also a reservation of its own
                    b.close()
                    b, sessions = self.log_in(info_b, self.b), sessions + 1
            if hashlib.sha256(a.read(0, 64)).digest() != before or writer.error is not None:
                effects.append((f"{opcode:#04x}", action, writer.error))
                break
        self.assertEqual([], effects)
        writer.go_on()
        self.assertTrue(b.is_write_protected())
        self.assertLess(sessions, 100)


class ReadersTest(IscsiCase):
    """A host that only reads, beside one that writes all the time."""

    def test_read_only_host_cannot_write_with_any_scsi_command(self):
        for method in WAYS:
            with self.subTest(method):
                _volume, (_, info_a), (_, info_b) = self.with_reader(method)
                a, b = self.log_in(info_a, self.a), self.log_in(info_b, self.b)
                a.write(7, b"7" * 512)
                writer = scsi.Writer(self, a)
                self.assert_refuses_writes(b, 7)
                self.assert_qemu_only_reads(self.b, info_b)
                writer.go_on()
                writer.end()
                self.assertEqual(b"7" * 512, b.read(7))
                self.assertEqual(a.read(1000, 64), b.read(1000, 64))
                self.assertEqual([False, True], [s.is_write_protected() for s in (a, b)])

    def assert_refuses_writes(self, session, block):
        for name, (cdb, data) in scsi.writes(block, b"x" * 512).items():
            reply = session.send(cdb, data)
            self.assertEqual(scsi.CHECK_CONDITION, reply.status, name)
            if name in NEITHER:
                self.assertEqual(scsi.ILLEGAL_REQUEST, reply.key, name)
            else:
                refusal = (scsi.DATA_PROTECT, scsi.WRITE_PROTECTED)
                self.assertEqual(refusal, (reply.key, reply.ascq), name)

    def assert_qemu_only_reads(self, host, info):
        host.read(info, 0, 512)
        liar = info | {"data": info["data"] | {"access_mode": "rw"}}
        error = self.assertRaises(initiators.Refused, host.write, liar, 0, b"x" * 512)
        self.assertIn("write protected", f"{error}".lower())
        self.assertRaises(initiators.Refused, host.write, info, 0, b"x" * 512)

    def test_read_only_host_cannot_remove_write_protection_or_block_writer(self):
        _volume, (_, info_a), (_, info_b) = self.with_reader()
        writer = scsi.Writer(self, self.log_in(info_a, self.a))
        b = self.log_in(info_b, self.b)
        for cdb, data in (
            (bytes([0x15, 0x10, 0, 0, 16, 0]), bytes(4) + b"\x0a\x0a" + bytes(10)),  # no SWP
            (bytes([0x1B, 0, 0, 0, 0, 0]), b""),  # STOP UNIT
            (bytes([0x1B, 0, 0, 0, 1, 0]), b""),  # START UNIT
            (bytes([0x16, 0, 0, 0, 0, 0]), b""),  # RESERVE(6)
            (b"\x5f\0\3" + bytes(5) + b"\x18\0", bytes(24)),  # PERSISTENT RESERVE OUT, CLEAR
        ):
            b.send(cdb, data)
            writer.go_on()
        self.assertTrue(b.is_write_protected())
        self.assert_refuses_writes(b, 7)

    def test_writable_target_refuses_read_only_host(self):
        _volume, (_, info_a), (_, info_b) = self.with_reader()
        own, writers = info_b["data"], info_a["data"]
        self.assertNotEqual(own["target_iqn"], writers["target_iqn"])
        login = {key: writers[key] for key in ("auth_username", "auth_password")}
        for data, host in (
            (own | {"target_iqn": writers["target_iqn"]}, self.b),
            (own | {"target_iqn": writers["target_iqn"]}, self.a),  # under the writer's name
            (own | {"target_iqn": writers["target_iqn"]} | login, self.b),
            (own | login, self.b),
        ):
            self.assert_out({"data": data}, host)
        self.log_in(info_b, self.b).read(0)

    def test_read_only_and_writable_targets_show_the_same_disk(self):
        volume, (_, info_a), (_, info_b) = self.with_reader("of its type")
        a, b = self.log_in(info_a, self.a), self.log_in(info_b, self.b)
        self.assertEqual(a.page(0x80), b.page(0x80))
        self.assertEqual(scsi.names(a.page(0x83)), scsi.names(b.page(0x83)))
        ends = {name[1:] for name in scsi.names(a.page(0x83))}
        self.assertIn(uuid.UUID(volume).bytes[1:], ends)

    def test_attach_and_detach_of_readers_and_writer_keeps_modes(self):
        volume, (first, info_a), (second, info_b) = self.with_reader("of its type")
        writer = scsi.Writer(self, self.log_in(info_a, self.a))
        writer.go_on()
        self.detach(second)
        self.assert_out(info_b, self.b)
        writer.go_on(200)
        second, info_b = self.attach(volume, self.b)
        self.assertEqual("ro", self.mode(second))
        reader = self.log_in(info_b, self.b)
        self.detach(first)
        self.assertIsInstance(writer.fail(), initiators.Refused)
        reader.read(0, 64)
        self.assertTrue(reader.is_write_protected())

        third, info_c = self.attach(volume, self.a)
        self.assertEqual("rw", self.mode(third))
        scsi.Writer(self, self.log_in(info_c, self.a)).go_on()
        self.assertEqual("ro", self.mode(second))
        self.assert_refuses_writes(reader, 7)

    def test_read_only_volume_refuses_all_writes(self):
        volume = self.create_multiattach_volume()
        first, info = self.attach(volume, self.a)
        self.log_in(info, self.a).write(7, b"7" * 512)
        self.detach(first)
        self.api.request_json(
            "POST", f"/volumes/{volume}/action", {"os-update_readonly_flag": {"readonly": True}}
        )
        wanted = {"volume_uuid": volume, "connector": self.a.connector, "mode": "rw"}
        answer = self.api.request("POST", "/attachments", {"attachment": wanted})
        self.assertEqual(400, answer.status, answer)
        self.assertIn("read-only", answer.message)
        for host in (self.a, self.b):
            _attachment, info = self.attach(volume, host)
            session = self.log_in(info, host)
            self.assert_refuses_writes(session, 7)
            self.assert_qemu_only_reads(host, info)
            self.assertEqual(b"7" * 512, session.read(7))


class SharedTest(IscsiCase):
    """Two servers on one host."""

    def test_two_attachments_of_a_host_share_a_session_until_the_last_detach(self):
        volume = self.create_multiattach_volume()
        first, info = self.attach(volume, self.a)
        second, other = self.attach(volume, self.a)
        _third, beside = self.attach(volume, self.b)
        self.assertEqual(info["data"]["target_iqn"], other["data"]["target_iqn"])
        writer = scsi.Writer(self, self.log_in(info, self.a))
        stranger = scsi.Writer(self, self.log_in(beside, self.b), range(2000, 2064))
        writer.go_on()
        self.detach(first)
        writer.go_on(200)
        self.assertIn(self.a.connector["initiator"], self.tgtd.sessions())
        # After a failure of the network a host logs in again as it did before.
        for known in (info, other):
            self.log_in(known, self.a).close()
        writer.go_on()
        self.detach(second)
        self.assertIsInstance(writer.fail(), initiators.Refused)
        for known in (info, other):
            self.assert_out(known, self.a)
        stranger.go_on()
        _fourth, renewed = self.attach(volume, self.a)
        for known in (info, other):
            self.assertEqual(known["data"]["auth_username"], renewed["data"]["auth_username"])
            self.assertRaises(initiators.Refused, self.log_in, known, self.a)
        self.log_in(renewed, self.a).close()

    def test_reader_and_writer_of_a_host_share_no_session(self):
        volume = self.create_multiattach_volume()
        first, info = self.attach(volume, self.a)
        second, reading = self.attach(volume, self.a, "ro")
        self.assertNotEqual(info["data"]["target_iqn"], reading["data"]["target_iqn"])
        writer, reader = scsi.Writer(self, self.log_in(info, self.a)), self.log_in(reading, self.a)
        self.assertTrue(reader.is_write_protected())
        self.detach(second)
        self.assertRaises(initiators.Refused, reader.read, 0)
        writer.go_on(200)
        second, reading = self.attach(volume, self.a, "ro")
        reader = self.log_in(reading, self.a)
        self.detach(first)
        self.assertIsInstance(writer.fail(), initiators.Refused)
        self.assert_out(info, self.a)
        reader.read(1000, 64)
