# SPDX-License-Identifier: Apache-2.0
"""Devices of attachd in made-up trees of sysfs."""

import unittest

from attachd.agent import strays
from attachd.agent.strays import AnyNames, ExportedDevice, Kind, TargetNames
from attachd.tests.fixtures import lifetime

VOLUME = "1a2b3c4d-5e6f-4071-8293-a4b5c6d7e8f9"
OTHER = "9f8e7d6c-5b4a-4392-8170-fedcba987654"
ATTACHMENT = "0c1d2e3f-4a5b-4c6d-9e7f-8091a2b3c4d5"
IQN = f"iqn.2026-01.internal.attachd:volume-{VOLUME}"


class TargetNamesTest(unittest.TestCase):
    def test_names_of_each_driver_have_volume(self):
        names = TargetNames()
        for name in (
            IQN,
            f"{IQN}-ro",
            f"{IQN}-for-{OTHER}",
            f"iqn.2026-01.internal.attachd:lvm-1:{VOLUME}-ro",
            f"nqn.2026-01.internal.attachd:lvm-1:{VOLUME}:0123456789abcdef",
            f"volumes/attachd-{VOLUME}",
        ):
            self.assertEqual(VOLUME, names.volume_id(name), name)

    def test_names_of_others_have_none(self):
        names = TargetNames()
        for name in (
            f"iqn.2010-10.org.openstack:volume-{VOLUME}",
            "iqn.2026-01.internal.attachd:0123456789abcdef0123456789abcdef",
            f"volumes/volume-{VOLUME}",
            f"volumes/attachd-copy.{VOLUME}",
            f"{IQN}-of-another",
            "",
        ):
            self.assertIsNone(names.volume_id(name), name)

    def test_names_follow_connections_and_prefixes(self):
        iscsi = {"target_iqn": f"iqn.2030-01.org:v.{OTHER}-ro", "volume_id": OTHER}
        rbd = {"name": f"pool/own-{OTHER}", "volume_id": OTHER}
        unknown = {"target_iqn": "iqn.2031-01.org:1"}
        names = TargetNames([iscsi, rbd, unknown], ["nqn.2032-01.org:"])
        for name in (
            f"iqn.2030-01.org:v.{VOLUME}",
            f"pool/own-{VOLUME}",
            f"nqn.2032-01.org:{VOLUME}",
        ):
            self.assertEqual(VOLUME, names.volume_id(name), name)
        for name in (f"iqn.2030-01.org:w.{VOLUME}", f"pool2/own-{VOLUME}", "iqn.2031-01.org:1"):
            self.assertIsNone(names.volume_id(name), name)

    def test_names_with_any_prefix_have_volume_and_attachment(self):
        names = AnyNames()
        for name, attachment in (
            (f"iqn.2010-10.org.openstack:volume-{VOLUME}", None),
            (f"iqn.2030-01.org:{VOLUME}-for-{OTHER}", OTHER),
            (f"iqn.2030-01.org:{OTHER}:{VOLUME}-ro", None),
        ):
            self.assertEqual(VOLUME, names.volume_id(name), name)
            self.assertEqual(attachment, names.attachment_id(name), name)
        for name in ("iqn.1994-05.com.example:disk", f"{IQN}-of-another"):
            self.assertEqual((None, None), (names.volume_id(name), names.attachment_id(name)))


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = lifetime.temp_dir(self)
        self.state_path = self.root / "state"

    def write(self, path, text):
        """Write a file of sysfs, with its newline."""
        file = self.root / "sys" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def found(self):
        return strays.list_exported(TargetNames(), self.state_path, self.root)

    def session(self, number, target, *, address="10.0.0.1", disk=None, unit=1):
        """Make an iSCSI session."""
        session = f"class/iscsi_session/session{number}"
        self.write(f"{session}/targetname", target)
        connection = f"class/iscsi_connection/connection{number}:0"
        self.write(f"{connection}/persistent_address", address)
        self.write(f"{connection}/persistent_port", "3260")
        if disk:
            bus = f"{number}:0:0"
            self.write(f"{session}/device/target{bus}/{bus}:{unit}/block/{disk}/size", "8")
            self.write(f"block/{disk}/size", "8")

    def multipath(self, name, uuid, *disks):
        """Make a device-mapper device over disks."""
        self.write(f"block/{name}/dm/uuid", uuid)
        (self.root / "sys/block" / name / "slaves").mkdir()
        for disk in disks:
            self.write(f"block/{name}/slaves/{disk}/size", "8")
            self.write(f"block/{disk}/holders/{name}/dm/uuid", uuid)


class ScanTest(Case):
    def test_empty_host_has_no_devices(self):
        self.assertEqual([], self.found())

    def test_iscsi_disk_has_portal_and_unit(self):
        self.session(3, IQN, disk="sda")
        self.session(4, "iqn.2010-10.org.openstack:x", disk="sdb")
        (device,) = self.found()
        expected = ExportedDevice(
            Kind.ISCSI, IQN, ("/dev/sda",), VOLUME, paths=(("10.0.0.1:3260", 1),)
        )
        self.assertEqual(expected, device)
        self.assertEqual(
            {
                "driver_volume_type": "iscsi",
                "target_portals": ["10.0.0.1:3260"],
                "target_iqns": [IQN],
                "target_luns": [1],
                "target_portal": "10.0.0.1:3260",
                "target_iqn": IQN,
                "target_lun": 1,
            },
            strays.connection_info(device),
        )

    def test_iscsi_session_without_disk_is_found(self):
        self.session(3, IQN)
        (device,) = self.found()
        self.assertEqual(((), (("10.0.0.1:3260", 0),)), (device.devices, device.paths))

    def test_iscsi_paths_are_one_multipath_device(self):
        self.session(3, IQN, disk="sda", unit=0)
        self.session(4, IQN, disk="sdb", unit=0, address="fd00::1")
        self.multipath("dm-2", "mpath-36001405aabb", "sda", "sdb")
        (device,) = self.found()
        self.assertEqual(("/dev/dm-2",), device.devices)
        info = strays.connection_info(device)
        self.assertEqual(["10.0.0.1:3260", "[fd00::1]:3260"], info["target_portals"])
        self.assertEqual(([IQN, IQN], [0, 0]), (info["target_iqns"], info["target_luns"]))

    def test_lvm_on_disk_is_no_multipath_device(self):
        self.session(3, IQN, disk="sda")
        self.multipath("dm-1", "LVM-abc", "sda")
        (device,) = self.found()
        self.assertEqual(("/dev/sda",), device.devices)

    def test_multipath_device_without_paths_is_recognized_by_wwid(self):
        digits = VOLUME.replace("-", "")
        self.multipath("dm-0", f"mpath-36{digits[1:]}")
        self.multipath("dm-1", f"mpath-36001405{digits[:25]}")
        self.multipath("dm-2", f"mpath-36{OTHER.replace('-', '')[1:]}", "sdz")
        self.multipath("dm-3", "mpath-360000000000000000e00000000010001")
        self.multipath("dm-4", f"LVM-36{digits[1:]}")
        found = self.found()
        self.assertEqual([("/dev/dm-0",), ("/dev/dm-1",)], [device.devices for device in found])
        for device in found:
            self.assertEqual(Kind.MULTIPATH, device.kind)
            self.assertTrue(device.is_of_volume(VOLUME))
            self.assertFalse(device.is_of_volume(OTHER))

    def test_nvme_namespaces_are_found_by_subsystem(self):
        nqn = f"nqn.2026-01.internal.attachd:lvm:{VOLUME}:0123456789abcdef"
        for number in range(2):
            self.write(f"class/nvme/nvme{number}/subsysnqn", nqn)
            self.write(f"class/nvme/nvme{number}/nvme0c{number}n1/size", "8")
        self.write("class/nvme-subsystem/nvme-subsys0/subsysnqn", nqn)
        self.write("class/nvme-subsystem/nvme-subsys0/nvme0n1/size", "8")
        self.write("class/nvme/nvme5/subsysnqn", "nqn.1994-11.com.vendor:disk")
        self.write("class/nvme/nvme5/nvme5n1/size", "8")
        self.assertEqual([ExportedDevice(Kind.NVME, nqn, ("/dev/nvme0n1",), VOLUME)], self.found())

    def test_nvme_controller_without_namespace_is_found(self):
        nqn = f"nqn.2026-01.internal.attachd:lvm:{VOLUME}:0123456789abcdef"
        self.write("class/nvme/nvme0/subsysnqn", nqn)
        self.assertEqual([ExportedDevice(Kind.NVME, nqn, (), VOLUME)], self.found())

    def test_nvme_subsystem_without_controller_is_not_connected(self):
        nqn = f"nqn.2026-01.internal.attachd:lvm:{VOLUME}:0123456789abcdef"
        self.write("class/nvme-subsystem/nvme-subsys0/subsysnqn", nqn)
        self.assertEqual([], self.found())

    def test_rbd_images_are_found_by_pool_and_name(self):
        for number, name in enumerate([f"attachd-{VOLUME}", f"volume-{OTHER}"]):
            self.write(f"bus/rbd/devices/{number}/pool", "volumes")
            self.write(f"bus/rbd/devices/{number}/name", name)
        image = f"volumes/attachd-{VOLUME}"
        self.assertEqual([ExportedDevice(Kind.RBD, image, ("/dev/rbd0",), VOLUME)], self.found())

    def test_loop_devices_are_found_by_file_of_export(self):
        deleted = f"/srv/files/exports/{VOLUME}/{ATTACHMENT} (deleted)"
        share = f"/run/attachd/mnt/0123/exports/{OTHER}/{ATTACHMENT}"
        for number, backing in enumerate([deleted, share, "/srv/exports/disk.img", share]):
            self.write(f"block/loop{number}/loop/backing_file", backing)
        self.write("block/loop9/size", "0")
        self.assertEqual(
            [
                ExportedDevice(Kind.LOOP, deleted, ("/dev/loop0",), VOLUME, ATTACHMENT),
                ExportedDevice(Kind.LOOP, share, ("/dev/loop1", "/dev/loop3"), OTHER, ATTACHMENT),
            ],
            self.found(),
        )

    def test_user_space_devices_are_found_by_directory(self):
        directories = [self.state_path / "devices" / name for name in (ATTACHMENT, "0123", "idle")]
        for number, directory in enumerate(directories):
            directory.mkdir(parents=True)
            if directory.name != "idle":
                self.write(f"block/loop{number}/loop/backing_file", f"{directory}/image")
        first, second = sorted(self.found(), key=lambda device: device.devices)
        self.assertEqual(
            ExportedDevice(
                Kind.USER_SPACE,
                f"{directories[0]}",
                ("/dev/loop0",),
                attachment_id=ATTACHMENT,
            ),
            first,
        )
        self.assertEqual((f"{directories[1]}", None), (second.target, second.attachment_id))
