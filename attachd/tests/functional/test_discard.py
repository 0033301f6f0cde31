# SPDX-License-Identifier: Apache-2.0
"""Blocks that a host discards are freed where the volume is."""

import json
import os
from pathlib import Path
import struct
import subprocess

from attachd.agent.mount import mounts
from attachd.tests.fixtures import initiators, processes, requirements, scsi
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.functional.test_access_modes import IscsiCase
from attachd.tests.functional.test_agents import AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

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


def fill_and_remove(mountpoint):
    """Let a file system write 64 MiB, and then not need it."""
    file = Path(mountpoint) / "file"
    with file.open("wb") as output:
        output.write(os.urandom(64 * MIB))
        os.fsync(output.fileno())
    file.unlink()
    os.sync()


@full_only("hosts")
class LocalTrimTest(HostCliCase):
    """The command of a host, with volumes that are loop devices over files."""

    def setUp(self):
        super().setUp()
        for tool in ("mkfs.xfs", "mkfs.ext4", "fstrim"):
            requirements.require_tool(self, tool)
        self.mountpoint = self.folder / "mnt"

    def occupied(self, volume):
        (file,) = (self.folder / "state").rglob(f"volumes/{volume}")
        return file.stat().st_blocks * 512

    def trim(self, name, code=0):
        said = self.local("trim", name, "-f", "json", code=code)
        return said if code else json.loads(said)["trimmed_bytes"]

    def test_unused_blocks_are_freed_on_request(self):
        for kind in ("xfs", "ext4"):
            volume = self.volume(kind)
            mount = ("--mountpoint", f"{self.mountpoint}", "--mkfs", kind, "--assume-empty")
            self.local("attach", kind, *mount)
            (attachment,) = self.storage.get(
                f"/attachments/detail?volume_id={volume}", microversion="3.44"
            ).json()["attachments"]
            self.assertIs(True, attachment["connection_info"]["discard"])
            fill_and_remove(self.mountpoint)
            before = self.occupied(volume)
            self.assertGreaterEqual(self.trim(kind), 64 * MIB)
            self.assertLessEqual(self.occupied(volume), before - 60 * MIB)
            self.local("detach", kind)

    def test_what_cannot_be_trimmed_says_why(self):
        self.volume()
        self.assertIn("is not attached to this host", self.trim("data", code=1))
        self.local("attach", "data")
        self.assertIn("is not mounted", self.trim("data", code=1))
        self.local("detach", "data")
        mount = ("--mountpoint", f"{self.mountpoint}")
        self.local("attach", "data", *mount, "--mkfs", "xfs", "--assume-empty")
        self.local("detach", "data")
        self.local("attach", "data", *mount, "--mode", "ro")
        self.assertIn("is mounted read-only at", self.trim("data", code=1))


@full_only("agents")
class AgentTrimTest(AgentCase):
    """A file system over iSCSI with QEMU's initiator: discards pass to the file of tgtd."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        for tool in ("mkfs.xfs", "fstrim"):
            requirements.require_tool(self, tool)

    def occupied(self):
        return self.backing_file().stat().st_blocks * 512

    def test_agent_trims_what_is_mounted(self):
        self.host.start()
        attachment = self.attach()
        device, mountpoint = f"{self.host.device(attachment)}", f"{self.host.top / 'mnt'}"
        processes.check_output(("mkfs.xfs", "-q", device))
        self.addCleanup(subprocess.run, ["umount", mountpoint], check=False, capture_output=True)
        mounts.mount(device, mountpoint, mode="rw")
        fill_and_remove(mountpoint)
        before = self.occupied()
        self.host.agents[-1].kill()
        self.host.set("trim_interval = 3600")
        self.host.start()
        wait_until(lambda: self.occupied() <= before - 60 * MIB, self.occupied)
        mounts.unmount(mountpoint)
        self.detach(attachment)
