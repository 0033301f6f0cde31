# SPDX-License-Identifier: Apache-2.0
"""Connections in the terms of QEMU."""

import unittest

from attachd import exception
from attachd.agent.connectors.qemu import blockdev

ISCSI = {
    "driver_volume_type": "iscsi",
    "target_portal": "[::1]:3260",
    "target_iqn": "iqn.x:v",
    "target_lun": "1",
    "access_mode": "rw",
}
CHAP = {"auth_method": "CHAP", "auth_username": "u", "auth_password": "top-secret"}
NFS = {
    "driver_volume_type": "nfs",
    "export": "[fd00::1]:/srv/volumes",
    "name": "exports/volume-1/attachment-1",
    "format": "raw",
    "access_mode": "rw",
}
RBD = {
    "driver_volume_type": "rbd",
    "name": "pool/volume-1",
    "hosts": ["10.0.0.1"],
    "ports": ["6789"],
    "auth_enabled": True,
    "auth_username": "cinder",
    "keyring": "[client.cinder]\n\tkey = AQtop-secret==\n",
    "access_mode": "ro",
}


class DescribeTest(unittest.TestCase):
    """Connection infos and their blockdev options."""

    def test_list_paths_of_iscsi_returns_blockdev_options(self):
        (found,) = blockdev.list_paths(ISCSI, "iqn.x:me")
        self.assertEqual(
            {
                "driver": "iscsi",
                "transport": "tcp",
                "initiator-name": "iqn.x:me",
                "portal": "[::1]:3260",
                "target": "iqn.x:v",
                "lun": 1,
                "read-only": False,
                "discard": "ignore",
            },
            found.blockdev,
        )
        self.assertIsNone(found.secret)
        self.assertTrue(found.writable)
        self.assertEqual("[::1]:3260 iqn.x:v", found.label)

    def test_list_paths_keeps_secret_out_of_options(self):
        for info in (ISCSI | CHAP, RBD):
            (found,) = blockdev.list_paths(info, "iqn.x:me")
            self.assertIn("top-secret", found.secret)
            self.assertNotIn("top-secret", f"{found} {found.blockdev}")

    def test_list_paths_of_multipath_target_returns_each_path(self):
        several = {
            "target_portals": ["a:1", "b:2"],
            "target_iqns": ["iqn.x:a", "iqn.x:b"],
            "target_luns": [1, 2],
        }
        found = blockdev.list_paths(ISCSI | several, "iqn.x:me")
        self.assertEqual(["a:1 iqn.x:a", "b:2 iqn.x:b"], [item.label for item in found])
        self.assertEqual([1, 2], [item.blockdev["lun"] for item in found])

    def test_list_paths_of_rbd_returns_blockdev_options(self):
        (found,) = blockdev.list_paths(RBD | {"discard": True}, "")
        self.assertEqual(
            {
                "driver": "rbd",
                "pool": "pool",
                "image": "volume-1",
                "server": [{"host": "10.0.0.1", "port": "6789"}],
                "user": "cinder",
                "key-secret": "secret",
                "read-only": True,
                "discard": "unmap",
            },
            found.blockdev,
        )
        self.assertEqual("AQtop-secret==", found.secret)
        bare = {text: RBD[text] for text in ("driver_volume_type", "name")}
        (found,) = blockdev.list_paths(bare | {"cluster_name": "east"}, "")
        self.assertEqual("/etc/ceph/east.conf", found.blockdev["conf"])

    def test_list_paths_of_nfs_returns_blockdev_options(self):
        (found,) = blockdev.list_paths(NFS, "")
        self.assertEqual(
            {
                "driver": "nfs",
                "server": {"type": "inet", "host": "fd00::1"},
                "path": "/srv/volumes/exports/volume-1/attachment-1",
                "user": 0,
                "group": 0,
                "read-only": False,
                "discard": "ignore",
            },
            found.blockdev,
        )
        self.assertEqual("/srv/volumes/exports/volume-1/attachment-1", found.label)
        (found,) = blockdev.list_paths(NFS | {"export": "storage-1:/"}, "")
        self.assertEqual("storage-1", found.blockdev["server"]["host"])
        self.assertEqual("/exports/volume-1/attachment-1", found.blockdev["path"])

    def test_list_paths_of_nfs_with_other_format_raises(self):
        with self.assertRaisesRegex(exception.HostError, "format qcow2"):
            blockdev.list_paths(NFS | {"format": "qcow2"}, "")

    def test_list_paths_of_rbd_with_mode_of_protocol_has_configuration(self):
        (found,) = blockdev.list_paths(RBD, "")
        self.assertIsNone(found.ceph_conf)
        (found,) = blockdev.list_paths(RBD | {"ms_mode": "secure"}, "")
        self.assertIn("\nms_client_mode = secure\n", found.ceph_conf)
        with self.assertRaisesRegex(exception.HostError, "lacks what"):
            blockdev.list_paths(RBD | {"ms_mode": "crc\nmon_host = 192.0.2.1"}, "")

    def test_list_paths_with_missing_key_raises_without_secrets(self):
        for broken in (
            {"driver_volume_type": "iscsi"},
            ISCSI | CHAP | {"target_lun": "top-secret"},
            ISCSI | {"auth_method": "CHAP"},
            {"driver_volume_type": "nfs"},
            NFS | {"export": "storage-1"},
            {"driver_volume_type": "rbd"},
            RBD | {"ports": []},
        ):
            with self.assertRaisesRegex(exception.HostError, "lacks what") as caught:
                blockdev.list_paths(broken, "iqn.x:me")
            self.assertNotIn("top-secret", f"{caught.exception}")

    def test_list_paths_of_unknown_protocol_suggests_kernel(self):
        with self.assertRaisesRegex(exception.HostError, "nvmeof.*kernel"):
            blockdev.list_paths({"driver_volume_type": "nvmeof"}, "iqn.x:me")

    def test_connection_name_ignores_mode_and_secrets(self):
        self.assertEqual(
            blockdev.connection_name(ISCSI),
            blockdev.connection_name(ISCSI | CHAP | {"access_mode": "ro"}),
        )
        self.assertNotEqual(
            blockdev.connection_name(ISCSI), blockdev.connection_name(ISCSI | {"target_lun": 2})
        )
