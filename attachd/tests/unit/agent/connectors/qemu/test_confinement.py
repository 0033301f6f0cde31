# SPDX-License-Identifier: Apache-2.0
"""What storage daemons may use; unit/linux/test_sandbox.py: how it is enforced."""

from pathlib import Path
import unittest

from attachd.agent.connectors.qemu import blockdev, confinement
from attachd.linux import sandbox

ISCSI = {
    "driver_volume_type": "iscsi",
    "target_portal": "192.0.2.1:3261",
    "target_iqn": "iqn.x:v1",
    "target_lun": 1,
}
RBD = {
    "driver_volume_type": "rbd",
    "name": "volumes/v1",
    "hosts": ["192.0.2.1", "2001:db8::1"],
    "ports": ["6789", "3300"],
    "auth_enabled": True,
    "auth_username": "attachd-1",
    "keyring": "[client.attachd-1]\n\tkey = QVE=\n",
}
NFS = {"driver_volume_type": "nfs", "export": "192.0.2.1:/srv", "name": "v1"}


def sandbox_for(info, *files, **changed):
    (path,) = blockdev.list_paths({**info, **changed}, "iqn.x:host")
    return confinement.sandbox_for(Path("/devices/1"), path, *files)


class ConfinementTest(unittest.TestCase):
    """Files, ports and rights by the protocol."""

    def test_iscsi_daemon_reaches_ports_of_its_portal(self):
        self.assertEqual([3261], sandbox_for(ISCSI).ports)
        for portal in ("192.0.2.1", "[2001:db8::1]", "storage"):
            self.assertEqual([3260], sandbox_for(ISCSI, target_portal=portal).ports)
        self.assertEqual([3262], sandbox_for(ISCSI, target_portal="[2001:db8::1]:3262").ports)

    def test_ceph_daemon_reaches_ports_of_ceph(self):
        ports = sandbox_for(RBD).ports
        self.assertLess({3300, 6789, 6800, 7568}, set(ports))
        self.assertNotIn(80, ports)
        # Of the monitor's other protocol nothing is known then.
        self.assertIsNone(sandbox_for(RBD, ports=["6790", "3300"]).ports)
        self.assertIsNone(sandbox_for(RBD, hosts=[], ports=[]).ports)

    def test_nfs_daemon_may_use_low_ports_to_any_port(self):
        confined = sandbox_for(NFS)
        self.assertIsNone(confined.ports)
        self.assertEqual(sandbox.NET_BIND_SERVICE, confined.capability)
        self.assertEqual([None] * 2, [sandbox_for(info).capability for info in (ISCSI, RBD)])

    def test_daemon_asks_name_servers_for_names_alone(self):
        cases = (ISCSI, {"target_portal": "storage:3260"}), (NFS, {"export": "storage:/srv"})
        for info, named in (*cases, (RBD, {"hosts": ["192.0.2.1", "storage"]})):
            self.assertFalse(sandbox_for(info).datagrams)
            self.assertTrue(sandbox_for(info, **named).datagrams)
        self.assertTrue(sandbox_for(RBD, hosts=[]).datagrams)

    def test_daemon_has_copies_of_its_files(self):
        secret = Path("/devices/1/secret")
        self.assertEqual([f"{secret}"], sandbox_for(ISCSI, secret).copies)
        conf = "/etc/ceph/ceph.conf"
        self.assertEqual([f"{secret}", conf], sandbox_for(RBD, secret).copies)
        other = sandbox_for(RBD, hosts=[], cluster_name="other", keyring=None)
        keyring = "/etc/ceph/other.client.attachd-1.keyring"
        self.assertEqual(["/etc/ceph/other.conf", keyring], other.copies)
        self.assertEqual(["/devices/1/pid"], other.writable)
