# SPDX-License-Identifier: Apache-2.0
"""Blocks that a host discards are freed where the volume is."""

from pathlib import Path
import struct

from attachd.tests.fixtures import initiators, scsi
from attachd.tests.functional.test_access_modes import IscsiCase
from attachd.tests.selection import full_only

MIB = 2**20


@full_only("storage")
class TgtTest(IscsiCase):
    """Hosts with initiators of their own, and the files of the volumes."""

    def file(self, volume):
        return Path(self.tgtd.options["tgt_volumes_dir"]) / volume

    def occupied(self, volume):
        return self.file(volume).stat().st_blocks * 512

    def test_discarded_blocks_are_freed_and_read_as_zeros(self):
        volume = self.create_multiattach_volume()
        _attachment, info = self.attach(volume, self.a)
        self.assertIs(True, info["data"]["discard"])
        self.a.write(info, 0, b"7" * 4 * MIB)
        before = self.occupied(volume)
        self.assertGreaterEqual(before, 4 * MIB)
        self.a.discard(info, MIB, 2 * MIB)
        self.assertLessEqual(self.occupied(volume), before - 2 * MIB)
        expected = b"7" * MIB + bytes(2 * MIB) + b"7" * MIB
        self.assertEqual(expected, self.file(volume).read_bytes()[: 4 * MIB])
        self.assertEqual(bytes(512), self.a.read(info, MIB, 512))

    def test_reader_cannot_discard(self):
        volume, (_, info_a), (_, info_b) = self.with_reader()
        self.a.write(info_a, 0, b"7" * MIB)
        before = self.occupied(volume)
        liar = info_b | {"data": info_b["data"] | {"access_mode": "rw"}}
        self.assertRaises(initiators.Refused, self.b.discard, liar, 0, MIB)
        session = self.log_in(info_b, self.b)
        for name, (cdb, data) in scsi.writes(0, b"x" * 512).items():
            if "UNMAP" in name:
                for sent, wanted in ((data, 0), (b"", len(data))):
                    reply = session.send(cdb, sent, wanted)
                    self.assertEqual(scsi.CHECK_CONDITION, reply.status, name)
        self.assertEqual(before, self.occupied(volume))
        self.assertEqual(b"7" * 512, self.a.read(info_a, 0, 512))

    def test_malformed_discards_concern_no_other_volume(self):
        """Lists that claim more than was sent, and ranges beyond the end of the volume.

        tgtd takes the address 2^55 for 0: a host can only harm what it may write to anyway.
        """
        volume, other = self.create_multiattach_volume(), self.create_multiattach_volume()
        _, info = self.attach(volume, self.a)
        _, info_other = self.attach(other, self.b)
        for host, known in ((self.a, info), (self.b, info_other)):
            host.write(known, 0, b"7" * MIB)
        session = self.log_in(info, self.a)
        for count in (0, 1, 31):
            for start, blocks in ((2**64 - 1, 1), (2**63, 2**32 - 1), (2**55, 8), (2**21, 8)):
                ranges = struct.pack(">QI4x", start, blocks) * count
                for claimed in (len(ranges), 0, 65_000):
                    header = struct.pack(">HH4x", (claimed + 6) & 0xFFFF, claimed)
                    data = header + ranges
                    cdb = struct.pack(">BB5xHx", 0x42, 0, len(data))
                    session.send(cdb, data, 0)
        session.write(0, b"8" * 512)
        self.assertEqual(b"8" * 512, session.read(0))
        self.assertEqual(b"7" * MIB, self.b.read(info_other, 0, MIB))
