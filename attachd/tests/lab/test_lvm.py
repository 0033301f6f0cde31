# SPDX-License-Identifier: Apache-2.0
"""The lvm driver on a real LVM, with LIO and with nvmet, and two real hosts with os-brick."""

from collections import Counter
import dataclasses
import inspect
import json
import secrets
import shlex
from typing import Final
import unittest
import uuid

import testtools
from testtools import content

from attachd.drivers import base
from attachd.tests.fixtures import scsi
from attachd.tests.lab import guests, installation, networks, raw_initiator, storage_node
from attachd.tests.wait import wait_until

MIB = 2**20
GIB = 2**30
POOL = storage_node.POOL
PORTS = storage_node.PORTS
TIMEOUT = 300.0

_GROUP = storage_node.GROUP
_FORGET_HOST = """\
multipath -F; multipath -W
iscsiadm --mode node --logoutall=all; iscsiadm --mode node --op delete; nvme disconnect-all; true
"""
_LONG_REPLACEMENT_TIMEOUT = (
    "sed -i 's/\\(replacement_timeout\\) = .*/\\1 = 600/' /etc/iscsi/iscsid.conf"
)
_LISTEN = """\
import socket, sys
listening = socket.create_server((sys.argv[1], 5555))
print("ready", flush=True)
sys.stdin.read()
"""
_STOP_WRITERS = """\
import pathlib, sys
from attachd.agent.mount.device_writers import DeviceWriters
DeviceWriters(pathlib.Path("/run/writers")).stop(sys.argv[1], lambda: True)
"""
# Sends each command past the kernel's checks, struct sg_io_hdr of scsi/sg.h; then resets.
_SEND = """\
import ctypes, fcntl, json, os, struct, sys
fd, answers = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK), []
def ask(request, argument):
    try:
        fcntl.ioctl(fd, request, argument)
    except OSError as error:
        return error.strerror
    return f"status {argument[64]}"
commands, resets = json.load(sys.stdin)
for text, direction, data in commands:
    cdb, sense = ctypes.create_string_buffer(bytes.fromhex(text)), ctypes.create_string_buffer(64)
    data = bytes.fromhex(data)
    buffer = ctypes.create_string_buffer(data, max(len(data), 1))
    addresses = map(ctypes.addressof, (buffer, cdb, sense))
    header = struct.pack("@iiBBHIPPPIIiPB", ord("S"), direction, len(text) // 2, 64, 0, len(data),
                         *addresses, 10000, 0, 0, 0, 0)
    answers.append(ask(0x2285, bytearray(header + bytes(64))))
for kind in resets:
    answers.append(ask(0x2284, bytearray(struct.pack("@i", kind) + bytes(64))))
print(json.dumps(answers))
"""
_NO_ESCALATION: Final = 0x100
_RESETS: Final = {"device": 1, "bus": 2, "host": 3, "target": 4}
_NONE, _OUT, _IN = -1, -2, -3
_KEYS = "/etc/attachd-host-keys"
_HAS_KEYS = """\
set -e
mkdir /sys/kernel/config/nvmet/hosts/probe
ls /sys/kernel/config/nvmet/hosts/probe
rmdir /sys/kernel/config/nvmet/hosts/probe
"""
# What a boot of a machine with systemd does, and a guest does not.
_ACTIVATE = f"vgchange -q --activate y {_GROUP}"


class Case(testtools.TestCase):
    """A storage node and two hosts, for all tests of a class.

    :cvar TARGET: the option lvm_target
    :cvar PATHS: a command that lists the states of the paths of a host with multipath
    :cvar LIVE: the state of a path that is used
    """

    TARGET = ""
    PATHS = ""
    LIVE = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.TARGET:
            raise unittest.SkipTest("the tests are in its subclasses")
        lab = guests.Lab(guests.need_lab(unittest.TestCase()))
        cls.addClassCleanup(lab.down)
        cls.parcel = installation.Parcel(cls.addClassCleanup)
        cls.a, cls.b, storage = lab.up(hosts=2, storage=1, disk_mib=storage_node.DISK_MIB)
        cls.parcel.install(storage)
        cls.node = storage_node.StorageNode(storage)
        cls.node.make_group()
        cls.addClassCleanup(cls.node.stop)
        for guest in (cls.a, cls.b):
            cls.addClassCleanup(guest.leave)
        cls.portal = f"{cls.node.address}:{PORTS[cls.TARGET]}"

    def setUp(self):
        super().setUp()
        self.live = {}
        self.infos = {}
        self.start(lvm_thin_pool=POOL)
        self.addOnException(self._show)
        self.addCleanup(self._forget)

    def start(self, **options):
        """Start the driver."""
        known = {"lvm_target": self.TARGET, "lvm_portals": [self.portal]}
        self.node.start(**{**known, **options})
        self.node.call("setup")

    def _show(self, _error):
        self.addDetail("driver", content.text_content(self.node.complaint()))

    def _forget(self):
        for guest in (self.a, self.b):
            guest.leave()
            guest.run(_FORGET_HOST)
        self.node.restart()
        self.node.remove_all()
        self.assertEqual([], self.node.call("list_exports"))

    def attach(self, volume, guest, *options, mode="rw", **fields):
        """Grant a volume to a host, and connect it there, with options of "brick"."""
        secret = secrets.token_hex(16)
        export = base.Export(f"{uuid.uuid4()}", guest.connector, mode, secret, **fields)
        info = self.node.call("grant", volume, export)
        self.assertEqual(info, self.node.call("grant", volume, export))
        guest.attach(info, *options)
        self.live[guest.name], self.infos[guest.name] = export, info
        return export

    def revoke(self, volume, guest):
        """Revoke the export of a host."""
        export = self.live.pop(guest.name)
        self.node.call("revoke", volume, export, list(self.live.values()))

    def detach(self, volume, guest):
        """Disconnect a volume at the host, and revoke it."""
        guest.detach(self.infos[guest.name])
        self.revoke(volume, guest)

    def assert_exported(self, volume):
        """Check that what is listed is what should be, sessions aside."""
        listed = [
            dataclasses.replace(item, sessions=frozenset()) for item in self.node.exports(volume)
        ]
        self.assertEqual(self.node.expected(volume, *self.live.values()), listed)

    def size(self, guest):
        """Return the size that a host sees after a rescan."""
        return guest.extend(self.infos[guest.name])

    def check_hosts_share_volume(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        self.assert_exported(volume)
        data = secrets.token_bytes(MIB)
        self.assertEqual(bytes(MIB), self.a.read(4 * MIB, MIB))
        self.a.write(4 * MIB, data)
        self.assertEqual(data, self.b.read(4 * MIB, MIB))
        self.detach(volume, self.b)
        self.assert_exported(volume)
        self.assertEqual(data, self.a.read(4 * MIB, MIB))
        self.detach(volume, self.a)
        self.assertEqual([], self.node.exports(volume))

    def check_discarded_blocks_are_freed(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.assertIs(True, self.infos[self.a.name]["data"]["discard"])
        self.a.run(f"dd if=/dev/urandom of={self.a.path} bs=1M count=64 oflag=direct status=none")
        self.assertGreaterEqual(self.count_allocated(volume), 64 * MIB)
        self.a.run(f"blkdiscard --offset {8 * MIB} --length {56 * MIB} {self.a.path}")
        self.assertLessEqual(self.count_allocated(volume), 9 * MIB)
        self.assertNotEqual(bytes(MIB), self.a.read(7 * MIB, MIB))
        self.assertEqual(bytes(MIB), self.a.read(8 * MIB, MIB))
        self.detach(volume, self.a)

    def count_allocated(self, volume):
        """Return how many bytes of its pool a thin volume has."""
        lv = f"{_GROUP}/attachd-{volume.id}"
        line = f"lvs --noheadings --options data_percent {lv}"
        return float(self.node.guest.run(line)) / 100 * GIB

    def check_clone_and_extension_while_host_writes(self, **options):
        self.start(**options)
        volume, copy = self.node.create(), base.VolumeRef(f"{uuid.uuid4()}", 2)
        self.attach(volume, self.a)
        data = secrets.token_bytes(MIB)
        self.a.write(8 * MIB, data)
        writer = guests.Writer(self, self.a, 12 * MIB)
        self.node.call("clone", copy, volume)
        writer.go_on()
        self.node.call("extend", volume, 2, list(self.live.values()))
        writer.go_on()
        self.assertGreater(writer.end(), 0)
        self.assertEqual(2 * GIB, self.size(self.a))
        # The second half was never written.
        self.assertEqual(bytes(MIB), self.a.read(2 * GIB - MIB, MIB))
        self.detach(volume, self.a)
        self.attach(copy, self.a)
        self.assertEqual(data, self.a.read(8 * MIB, MIB))
        self.assertEqual(bytes(MIB), self.a.read(2 * GIB - MIB, MIB))
        self.detach(copy, self.a)

    def check_existing_lv_becomes_volume_and_lv_again(self, make, **options):
        """Manage an LV, which a command makes, and unmanage it."""
        self.start(**options)
        storage, device = self.node.guest, f"/dev/{_GROUP}/disk"
        storage.run(f"lvcreate -q --yes --name disk {make} {_GROUP}")
        storage.run(f"dd if=/dev/urandom of={device} bs=1M count=64 oflag=direct status=none")
        expected = self.checksum(storage, device)
        (item,) = self.node.call("list_manageable")
        reference = item["reference"]
        self.assertEqual({"source-name": f"{_GROUP}/disk"}, reference)
        self.assertEqual((GIB + 8 * MIB, ""), (item["size_bytes"], item["refusal"]))
        volume = base.VolumeRef(f"{uuid.uuid4()}", 2)
        storage.run(f"sleep 600 < {device} > /dev/null 2>&1 & echo $! > /run/user.pid")
        error = self.assertRaises(
            storage_node.Refused, self.node.call, "manage", volume, reference
        )
        self.assertIn("in use", f"{error}")
        storage.run("kill $(cat /run/user.pid)")
        wait_until(
            lambda: not self.node.call("get_manageable", reference)["refusal"], timeout=TIMEOUT
        )
        self.node.call("manage", volume, reference)
        self.assertEqual({volume.id: 2 * GIB}, self.node.call("list_volumes"))
        self.attach(volume, self.a)
        self.assertEqual(expected, self.checksum(self.a, self.a.path))
        self.assertEqual(bytes(MIB), self.a.read(2 * GIB - MIB, MIB))
        self.assertRaises(storage_node.Refused, self.node.call, "unmanage", volume)
        self.detach(volume, self.a)
        self.node.call("unmanage", volume)
        self.assertEqual({}, self.node.call("list_volumes"))
        released = f"{_GROUP}/volume-{volume.id}"
        self.assertEqual(expected, self.checksum(storage, f"/dev/{released}"))
        self.node.call("manage", volume, {"source-name": released})
        self.assertEqual({volume.id: 2 * GIB}, self.node.call("list_volumes"))

    def checksum(self, guest, path):
        """Return a checksum of the beginning of a volume, past all caches."""
        line = f"dd if={path} bs=1M count=64 iflag=direct status=none | sha256sum"
        return guest.run(line).split()[0]

    def check_other_host_writes_after_revoke(self):
        """Revoke a volume that a host writes to, and return the writer of that host."""
        volume = self.node.create()
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        staying, leaving = guests.Writer(self, self.a, 12 * MIB), guests.Writer(self, self.b, 0)
        self.revoke(volume, self.b)
        self.assert_exported(volume)
        before = self.a.read(0, MIB)
        staying.go_on()
        self.assertEqual(before, self.a.read(0, MIB))
        self.assertGreater(staying.end(), 0)
        self.detach(volume, self.a)
        return leaving

    def check_writer_goes_on_after_reboot_of_storage_node(self):
        volume = self.node.create()
        export = self.attach(volume, self.a)
        writer = guests.Writer(self, self.a, 0)
        before = self.node.call("boot_id")
        self.node.stop()
        self.node.guest.crash()
        self.node.guest.boot()
        self.node.guest.run(_ACTIVATE)
        self.node.restart()
        self.node.call("setup")
        self.assertNotEqual(before, self.node.call("boot_id"))
        self.assertEqual([], self.node.call("list_exports"))
        # As the manager does when it sees another boot id.
        info = self.node.call("grant", volume, export)
        self.assertEqual(self.infos[self.a.name], info)
        writer.go_on()
        last = writer.end()
        block = self.a.read((last - 1) % 256 * guests.BLOCK, guests.BLOCK)
        self.assertEqual(last, int.from_bytes(block[:8], "big"))
        self.detach(volume, self.a)

    def check_storage_node_does_not_read_the_content_of_volumes(self):
        volume, uuid_ = self.node.create(), f"{uuid.uuid4()}"
        self.attach(volume, self.a)
        self.a.run(f"mkfs.ext4 -q -L trap -U {uuid_} {self.a.path} && sync")
        self.detach(volume, self.a)
        lv = f"/dev/{_GROUP}/attachd-{volume.id}"
        node = self.node.guest
        node.run(f"udevadm settle; lvchange --activate n {lv}; lvchange --activate y {lv}")
        node.run(f"udevadm settle; test -b {lv} && blkid {lv} | grep -q {uuid_}")
        links = node.run(f"ls /dev/disk/by-*; udevadm info --query=property {lv}").decode()
        self.assertEqual([False, False], [item in links for item in (uuid_, "trap")])
        self.attach(volume, self.b)
        self.b.run(f"blkid {self.b.path} | grep -q {uuid_}")
        self.detach(volume, self.b)

    def check_writer_goes_on_with_each_of_two_paths(self):
        """Cut one path after the other while a host writes, and extend the volume meanwhile."""
        paths = [networks.Network(number) for number in (1, 2)]
        for path in paths:
            path.add(self.a)
        portals = [f"{path.add(self.node.guest)}:{PORTS[self.TARGET]}" for path in paths]
        self.start(lvm_thin_pool=POOL, lvm_portals=portals)
        volume = self.node.create()
        self.attach(volume, self.a, "--multipath")
        self.assert_exported(volume)
        self.assertEqual(2, self.count_paths())
        writer = guests.Writer(self, self.a, 12 * MIB)
        for size_gib, cut in enumerate(paths, start=2):
            cut.pull_cable(self.node.guest)
            self.addCleanup(cut.plug_in, self.node.guest)
            wait_until(lambda: self.count_paths() == 1, self.states, timeout=TIMEOUT)
            writer.go_on()
            cut.plug_in(self.node.guest)
            wait_until(lambda: self.count_paths() == 2, self.states, timeout=TIMEOUT)
            writer.go_on()
            self.node.call("extend", volume, size_gib, list(self.live.values()))
            self.assertEqual(size_gib * GIB, self.size(self.a))
            writer.go_on()
        last = writer.end()
        place = 12 * MIB + (last - 1) % 256 * guests.BLOCK
        block = self.a.read(place, guests.BLOCK)
        self.assertEqual(last, int.from_bytes(block[:8], "big"))
        self.assertEqual(bytes(MIB), self.a.read(3 * GIB - MIB, MIB))
        self.detach(volume, self.a)
        self.assertEqual(([], 0), (self.a.devices(), self.count_paths()))

    def states(self):
        """List the states of the paths of the first host."""
        return self.a.run(self.PATHS).decode().splitlines()

    def count_paths(self):
        """Count those that are used."""
        return self.states().count(self.LIVE)

    def check_nothing_of_host_without_cable_arrives_after_revoke(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        leaving = guests.Writer(self, self.b, 0)
        self.b.cut_off(guests.PRIVATE_NETWORK)
        self.addCleanup(self.b.plug_in, guests.PRIVATE_NETWORK)
        self.revoke(volume, self.b)
        self.assert_exported(volume)
        (listed,) = (item for item in self.node.exports(volume) if item.mode)
        self.assertLessEqual(listed.sessions, {self.a.connector["initiator"]})
        before = self.a.read(0, MIB)
        self.b.plug_in(guests.PRIVATE_NETWORK)
        self.end_revoked(leaving)
        self.assertEqual(before, self.a.read(0, MIB))
        self.detach(volume, self.a)

    def end_revoked(self, writer):
        """Check that the writer of a host without access gets an error.

        Its last write may be one whose answer was on the wire when the access ended.
        """
        self.assertIn("OSError", f"{self.assertRaises(guests.Failed, writer.go_on)}")

    def check_other_host_is_refused(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.assertRaises(guests.Failed, self.b.attach, self.infos[self.a.name])
        self.assertEqual([], self.b.devices())
        self.detach(volume, self.a)

    def check_bad_options_are_refused(self):
        taken = f"{self.node.address}:5555"
        listener = guests.Program(
            self.node.guest.lab, self.node.guest.name, "python3", "-c", _LISTEN, self.node.address
        )
        self.addCleanup(listener.kill)
        listener.wait_for_lines(1)
        for options, named in (
            ({"lvm_volume_group": "missing"}, "lvm_volume_group.*missing"),
            ({"lvm_thin_pool": "missing"}, "lvm_thin_pool.*missing"),
            ({"lvm_portals": [taken]}, f"lvm_portals.*{taken}.*in use"),
            ({"lvm_portals": ["192.0.2.1:3260"]}, "lvm_portals.*192.0.2.1"),
            ({"lvm_portals": []}, "lvm_portals is empty"),
        ):
            error = self.assertRaises(storage_node.Refused, self.start, **options)
            self.assertRegex(f"{error}", named)
        self.start()
        big = base.VolumeRef(f"{uuid.uuid4()}", 100)
        error = self.assertRaises(storage_node.Refused, self.node.call, "create", big)
        self.assertRegex(f"{error}", "insufficient free space.*Extend the volume group")
        self.assertEqual({}, self.node.call("list_volumes"))


class LioTest(Case):
    """iSCSI."""

    TARGET = "lio"
    PATHS = "multipathd show paths raw format '%t %o'"
    LIVE = "active running"

    def test_hosts_share_volume(self):
        self.check_hosts_share_volume()

    def test_discarded_blocks_are_freed(self):
        self.check_discarded_blocks_are_freed()

    def test_thin_clone_and_extension_while_host_writes(self):
        self.check_clone_and_extension_while_host_writes(lvm_thin_pool=POOL)

    def test_thick_clone_and_extension_while_host_writes(self):
        self.check_clone_and_extension_while_host_writes(lvm_thin_pool="")

    def test_existing_thick_lv_becomes_volume_and_lv_again(self):
        self.check_existing_lv_becomes_volume_and_lv_again("--size 1032m", lvm_thin_pool="")

    def test_existing_thin_lv_becomes_volume_and_lv_again(self):
        make = f"--type thin --thinpool {POOL} --virtualsize 1032m"
        self.check_existing_lv_becomes_volume_and_lv_again(make, lvm_thin_pool=POOL)

    def test_revoked_writer_fails_and_other_goes_on(self):
        self.end_revoked(self.check_other_host_writes_after_revoke())

    def test_nothing_of_host_without_cable_arrives_after_revoke(self):
        self.check_nothing_of_host_without_cable_arrives_after_revoke()

    def test_writer_goes_on_with_each_of_two_paths(self):
        self.check_writer_goes_on_with_each_of_two_paths()

    def test_writer_goes_on_after_reboot_of_storage_node(self):
        # The lab's 15 seconds are less than an emulated machine needs to boot.
        self.a.run(_LONG_REPLACEMENT_TIMEOUT)
        self.check_writer_goes_on_after_reboot_of_storage_node()

    def test_storage_node_does_not_read_the_content_of_volumes(self):
        self.check_storage_node_does_not_read_the_content_of_volumes()

    def test_other_host_is_refused(self):
        self.check_other_host_is_refused()

    def test_bad_options_are_refused(self):
        self.check_bad_options_are_refused()

    def test_reader_cannot_write(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        reader = self.attach(volume, self.b, mode="ro")
        self.assert_exported(volume)
        data = secrets.token_bytes(MIB)
        self.a.write(4 * MIB, data)
        self.assertEqual(data, self.b.read(4 * MIB, MIB))
        # What root can do about the kernel's own refusal.
        self.b.run(f"blockdev --setrw {self.b.path} || true")
        self.assertRaises(guests.Failed, self.b.write, 4 * MIB, bytes(guests.BLOCK))
        line = f"sg_raw --readonly --send=512 {self.b.path} 2a 00 00 00 00 00 00 00 01 00"
        refusal = self.assertRaises(guests.Failed, self.b.run, line, b"\3" * 512)
        self.assertIn("Data Protect", f"{refusal}")
        self.assertEqual(bytes(512), self.a.read(0, 512))
        exports = {item.mode: item for item in self.node.exports(volume)}
        self.assertEqual({reader.connector["initiator"]}, exports["ro"].sessions)
        self.detach(volume, self.b)
        self.detach(volume, self.a)

    def test_damage_is_listed_and_repaired(self):
        volume = self.node.create()
        self.attach(volume, self.b, mode="ro")
        target = f"/sys/kernel/config/target/iscsi/{self.infos[self.b.name]['data']['target_iqn']}"
        acl = f"{target}/tpgt_1/acls/{self.b.connector['initiator']}"
        for damage in (
            f"echo 0 > {acl}/lun_0/write_protect",
            f"mkdir {target}/tpgt_1/acls/iqn.2026-01.lab.attachd:other",
            f"echo 1 > {target}/tpgt_1/attrib/generate_node_acls",
            f"rmdir {target}/tpgt_1/np/*",
        ):
            self.node.guest.run(damage)
            self.assertRaises(AssertionError, self.assert_exported, volume)
            self.node.call("revoke_all_except", volume, list(self.live.values()))
            self.node.call("grant", volume, self.live[self.b.name])
            self.assert_exported(volume)
        self.assertEqual(bytes(MIB), self.b.read(0, MIB))
        self.detach(volume, self.b)

    def test_reservation_is_kept_and_its_holder_seen(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        self.assertIsNone(self.node.call("get_persistent_reservation", volume))
        for action in ("--register --param-sark=0x1", "--reserve --param-rk=0x1 --prout-type=1"):
            self.a.run(f"sg_persist --out {action} {self.a.path}")
        self.assertEqual(
            {"holder": self.a.connector["initiator"], "type": "Write Exclusive Access"},
            self.node.call("get_persistent_reservation", volume),
        )
        self.assertRaises(guests.Failed, self.b.write, 0, bytes(guests.BLOCK))
        self.a.write(0, b"1" * guests.BLOCK)
        self.detach(volume, self.a)
        self.assertIsNone(self.node.call("get_persistent_reservation", volume))
        self.detach(volume, self.b)


class LioReadersTest(Case):
    """A host that only reads and sends each command past its kernel, beside one that writes."""

    TARGET = "lio"

    def setUp(self):
        super().setUp()
        self.volume = self.node.create()
        self.attach(self.volume, self.a)
        self.attach(self.volume, self.b, mode="ro")
        self.writer = guests.Writer(self, self.a, 12 * MIB)

    def end(self):
        self.writer.go_on()
        self.assertGreater(self.writer.end(), 0)
        self.detach(self.volume, self.b)
        self.detach(self.volume, self.a)

    def count_resets(self, plugin):
        """Return how often the backstore of a kind was reset."""
        store = f"/sys/kernel/config/target/core/{plugin}_*/{self.volume.id}"
        return int(self.node.guest.run(f"cat {store}/statistics/scsi_lu/resets"))

    def send(self, commands=(), resets=()):
        """Send commands, each with its direction and its data, as a reader; return the answers."""
        line = shlex.join(["python3", "-c", _SEND, self.b.path])
        asked = [(cdb.hex(), direction, data.hex()) for cdb, direction, data in commands]
        return json.loads(self.b.run(line, json.dumps([asked, resets]).encode()))

    def test_reader_sees_what_is_written_and_an_extension(self):
        for round_ in range(10):
            data = secrets.token_bytes(MIB)
            self.a.write((round_ % 2) * MIB, data)
            self.assertEqual(data, self.b.read((round_ % 2) * MIB, MIB), round_)
        self.node.call("extend", self.volume, 2, list(self.live.values()))
        self.assertEqual([2 * GIB] * 2, [self.size(self.a), self.size(self.b)])
        self.a.write(2 * GIB - MIB, data)
        self.assertEqual(data, self.b.read(2 * GIB - MIB, MIB))
        self.end()

    def test_reservations_and_resets_of_a_reader_do_not_reach_writers(self):
        before = self.count_resets("iblock")
        register, key = b"\x5f\0\0" + bytes(5) + b"\x18\0", bytes(8) + b"\1" * 8 + bytes(8)
        for command in (
            (b"\x16" + bytes(5), _NONE, b""),  # RESERVE(6)
            (b"\x56" + bytes(9), _NONE, b""),  # RESERVE(10)
            (register, _OUT, key),
            (b"\x5f\1\3" + register[3:], _OUT, key[8:] + bytes(8)),  # RESERVE
            (b"\x5f\3\3" + register[3:], _OUT, key[8:] + bytes(8)),  # CLEAR
        ):
            self.assertEqual(["status 2"], self.send([command]), command)
            self.writer.go_on()
        for kind, number in _RESETS.items():
            self.addDetail(kind, content.text_content(f"{self.send((), [number])}"))
            self.writer.go_on()
        self.assertEqual(["status 0"], self.send((), [_RESETS["device"] | _NO_ESCALATION]))
        self.assertGreater(self.count_resets("fileio"), 0)
        self.assertEqual(before, self.count_resets("iblock"))
        self.end()

    def test_no_opcode_of_a_reader_in_any_direction_has_an_effect(self):
        data = secrets.token_bytes(MIB)
        self.a.write(0, data)
        directions = ((_NONE, b""), (_OUT, b"x" * 512), (_OUT, b"x" * 1024), (_IN, bytes(512)))
        commands = [
            (scsi.any_command(opcode, action, 7), *direction)
            for opcode in range(256)
            for action in (0, 1, 8, 0x10, 0x1F)
            for direction in directions
        ]
        answers = self.send(commands)
        self.addDetail("answers", content.text_content(f"{Counter(answers)}"))
        self.assertEqual(len(commands), len(answers))
        # Among them are reads, inquiries and the like.
        self.assertGreater(answers.count("status 0"), 50)
        self.assertEqual(data, self.a.read(0, MIB))
        self.assertRaises(guests.Failed, self.b.write, 4 * MIB, bytes(guests.BLOCK))
        self.end()

    def test_reader_cannot_discard_nor_can_a_destination_of_a_move(self):
        """UNMAP and the like, in both directions; the second is over the writers' backstore."""
        data = secrets.token_bytes(MIB)
        self.a.write(0, data)
        discards = [
            command for name, command in scsi.writes(0, b"x" * 512).items() if "UNMAP" in name
        ]
        commands = [(cdb, direction, sent) for cdb, sent in discards for direction in (_OUT, _IN)]
        for fields in ({}, {"own_connection": True}):
            self.detach(self.volume, self.b)
            self.attach(self.volume, self.b, mode="ro", **fields)
            answers = self.send(commands)
            self.addDetail(f"{fields}", content.text_content(f"{answers}"))
            self.assertEqual(len(commands), len(answers))
            self.assertEqual(data, self.a.read(0, MIB), answers)
        self.end()

    def test_data_for_commands_of_a_reader_that_read_stops_no_target(self):
        data = secrets.token_bytes(MIB)
        self.a.write(0, data)
        info = {**self.infos[self.b.name]["data"], "initiator": self.b.connector["initiator"]}
        line = shlex.join(["python3", "-c", inspect.getsource(raw_initiator)])
        asked = json.dumps({"info": info, "rounds": 20}).encode()
        answers = json.loads(self.b.run(line, asked))
        self.addDetail("answers", content.text_content(f"{answers}"))
        self.assertEqual({raw_initiator.DATA_IN: 20}, answers[raw_initiator.PLAIN])
        self.assertNotIn("BUG:", self.node.guest.run("dmesg").decode())
        self.detach(self.volume, self.b)
        self.attach(self.volume, self.b, mode="ro")
        self.assertEqual(data, self.b.read(0, MIB))
        self.end()


class NvmetTest(Case):
    """NVMe/TCP."""

    TARGET = "nvmet"
    PATHS = "cat /sys/class/nvme/nvme*/state 2> /dev/null || true"
    LIVE = "live"

    def test_hosts_share_volume(self):
        self.check_hosts_share_volume()

    def test_discarded_blocks_are_freed(self):
        self.check_discarded_blocks_are_freed()

    def test_thin_clone_and_extension_while_host_writes(self):
        self.check_clone_and_extension_while_host_writes(lvm_thin_pool=POOL)

    def test_thick_clone_and_extension_while_host_writes(self):
        self.check_clone_and_extension_while_host_writes(lvm_thin_pool="")

    def test_writer_goes_on_after_reboot_of_storage_node(self):
        self.check_writer_goes_on_after_reboot_of_storage_node()

    def test_other_host_is_refused(self):
        self.check_other_host_is_refused()

    def test_bad_options_are_refused(self):
        self.check_bad_options_are_refused()

    def test_revoked_writer_writes_nothing_and_other_goes_on(self):
        self.end_revoked(self.check_other_host_writes_after_revoke())

    def test_nothing_of_host_without_cable_arrives_after_revoke(self):
        self.check_nothing_of_host_without_cable_arrives_after_revoke()

    def end_revoked(self, writer):
        # The host tries to connect again without end, unless it is disconnected.
        self.b.run("nvme disconnect-all")
        super().end_revoked(writer)

    def test_writer_goes_on_with_each_of_two_paths(self):
        self.check_writer_goes_on_with_each_of_two_paths()

    def test_stopped_writers_write_nothing(self):
        volume = self.node.create()
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        self.parcel.install(self.a)
        flood = guests.Flood(self.a, 1, 64)
        wait_until(lambda: self.b.read(0, MIB).strip(b"\0"), timeout=TIMEOUT)
        self.stop_writers()
        self.assertIn("Operation not permitted", flood.wait_for_error())

        self.a.run(f"blockdev --setrw {self.a.path} && mkfs.ext4 -q {self.a.path}")
        self.a.run(f"mkdir -p /mnt/volume && mount {self.a.path} /mnt/volume")
        self.a.run("dd if=/dev/urandom of=/mnt/volume/file bs=1M count=16 status=none")
        self.stop_writers()
        self.a.run("! dd if=/dev/zero of=/mnt/volume/file bs=1M count=16 conv=fsync")
        self.a.run(f"umount /mnt/volume && ! mount {self.a.path} /mnt/volume")
        self.detach(volume, self.b)
        self.detach(volume, self.a)

    def stop_writers(self):
        """Stop the writers of the first host; after that nothing of them reaches the volume."""
        self.a.run(f"{installation.FOLDER}/bin/python -c '{_STOP_WRITERS}' {self.a.path}")
        before = self.checksum(self.b, self.b.path)
        self.a.run(f"sync; sync {self.a.path}")
        self.assertEqual(before, self.checksum(self.b, self.b.path))

    def test_reader_is_refused(self):
        volume = self.node.create()
        error = self.assertRaises(storage_node.Refused, self.attach, volume, self.a, mode="ro")
        self.assertIn("cannot keep a host from writing", f"{error}")
        self.assertEqual([], self.node.exports(volume))

    def test_damage_is_listed_and_repaired(self):
        volume = self.node.create()
        self.attach(volume, self.b)
        root = "/sys/kernel/config/nvmet"
        nqn = self.infos[self.b.name]["data"]["target_nqn"]
        for damage in (
            f"echo 0 > {root}/subsystems/{nqn}/namespaces/1/enable",
            f"rm {root}/ports/*/subsystems/{nqn}",
        ):
            self.node.guest.run(damage)
            self.assertRaises(AssertionError, self.assert_exported, volume)
            self.node.call("revoke_all_except", volume, list(self.live.values()))
            self.node.call("grant", volume, self.live[self.b.name])
            self.assert_exported(volume)
        wait_until(self.b.devices, timeout=TIMEOUT)
        self.detach(volume, self.b)


class NvmetKeysTest(Case):
    """NVMe/TCP with DH-CHAP, which the kernel of the guests may not have."""

    TARGET = "nvmet"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.node.guest.run(_HAS_KEYS):
            raise unittest.SkipTest("the kernel of the guests has no NVME_TARGET_AUTH")

    def use_key(self, guest, key):
        """Let a host use a key, by the configuration of nvme-cli."""
        names = {"hostnqn": guest.connector["nqn"], "hostid": guest.connector["nvme_hostid"]}
        data = json.dumps([{**names, "dhchap_key": key}]).encode()
        guest.run("cat > /etc/nvme/config.json", data)
        self.addCleanup(guest.run, "rm -f /etc/nvme/config.json")

    def test_hosts_are_admitted_by_their_keys(self):
        keys = {
            guest: guest.run(f"nvme gen-dhchap-key --nqn={guest.connector['nqn']}")
            .decode()
            .strip()
            for guest in (self.a, self.b)
        }
        lines = [f"{guest.connector['nqn']} {key}\n" for guest, key in keys.items()]
        self.node.guest.run(f"umask 077; cat > {_KEYS}", "".join(lines).encode())
        self.start(lvm_thin_pool=POOL, lvm_host_keys=_KEYS)
        volume = self.node.create()
        for key in ("", keys[self.b]):
            if key:
                self.use_key(self.a, key)
            self.assertRaises(guests.Failed, self.attach, volume, self.a)
            self.assertEqual([], self.a.devices())
            self.node.call("revoke_all_except", volume, [])
        self.use_key(self.a, keys[self.a])
        self.use_key(self.b, keys[self.b])
        self.attach(volume, self.a)
        self.attach(volume, self.b)
        self.assert_exported(volume)
        data = secrets.token_bytes(MIB)
        self.a.write(0, data)
        self.assertEqual(data, self.b.read(0, MIB))
        self.detach(volume, self.b)
        self.detach(volume, self.a)
