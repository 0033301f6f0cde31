# SPDX-License-Identifier: Apache-2.0
"""Volumes that grow in guests of a compute host whose kernel has initiators and mounts shares."""

import re

from attachd.tests.fixtures import lifetime
from attachd.tests.lab import guests, installation, nfs_server, remote_driver, storage_node
from attachd.tests.nova import kernel_host
from attachd.tests.nova.file_systems import FilesystemCase
from attachd.tests.nova.more_storage import StorageCase
from attachd.tests.wait import wait_until


def wait(condition, message=""):
    """Wait for what the host or one of its guests does."""
    return wait_until(condition, message, timeout=kernel_host.SECONDS, interval=1)


class GrowthTest(FilesystemCase, StorageCase):
    """A host for all tests, and for each a guest with an ext4 and an xfs."""

    SECONDS = kernel_host.SECONDS
    host = None
    node = None

    def setUp(self):
        super().setUp()
        self.cloud.prepare(False)
        self.addCleanup(self.cloud.prepare, True)
        if GrowthTest.host is None:
            GrowthTest.host = kernel_host.KernelHost(self.cloud, self.addClassCleanup)

    def wait_for_line(self, server, pattern, timeout=kernel_host.SECONDS):
        def match():
            return (re.findall(pattern, self.host.console(server)) or [""])[-1]

        return wait(match, lambda: self.host.console(server))

    def attach(self, server, volume):
        self.admin.add(server, volume, wait_for=None)
        wait(lambda: self.states(volume) == ["attached"], self.host.log)

    def detach(self, server, volume):
        self.admin.remove(server, volume, wait_for=None)
        wait(lambda: self.admin.get_volume(volume)["status"] == "available", self.host.log)
        self.admin.delete_volume(volume)

    def check_growth(self, vtype):
        """Extend attached volumes, have the guest extend its file systems, and detach them."""
        server = self.start_guest(self.host.name)
        self.addCleanup(self.admin.delete, server, timeout=kernel_host.SECONDS)
        volumes = [self.admin.volume(vtype) for _ in range(2)]
        for volume in volumes:
            self.attach(server, volume)
        checksums = self.wait_for_sizes(server, 1)
        for volume in volumes:
            self.extend(volume, 2)
        self.assertEqual(checksums, self.wait_for_sizes(server, 2))
        wait(lambda: self.action_result(server, "extend_volume") == "Success", self.host.log)
        self.assertEqual([["attached"]] * 2, [self.states(volume) for volume in volumes])
        for volume in volumes:
            self.detach(server, volume)
        self.assertEqual(([], []), (self.host.devices(), self.host.shares()))

    def check_lvm(self, target):
        """Check volumes that a storage node exports.

        :param target: the option lvm_target
        """
        node = self.storage_node()
        portals = [f"{node.address}:{storage_node.PORTS[target]}"]
        options = {"lvm_target": target, "lvm_portals": portals}
        options["lvm_thin_pool"] = storage_node.POOL
        options["lvm_volume_group"] = storage_node.GROUP
        folder = lifetime.temp_dir(self)
        program = remote_driver.install(folder, node.guest, "lvm", options)
        driver = remote_driver.NAME
        self.check_growth(self.add_backend(driver, {"remote_program": program}, folder))

    def storage_node(self):
        if GrowthTest.node is None:
            _host, guest = self.host.lab.up(hosts=1, storage=1, disk_mib=storage_node.DISK_MIB)
            installation.Parcel(self.addClassCleanup).install(guest)
            GrowthTest.node = storage_node.StorageNode(guest)
            GrowthTest.node.make_group()
        return GrowthTest.node

    def test_file_systems_on_tgt_grow_by_tools_of_running_guest(self):
        self.check_growth("iscsi")

    def test_file_systems_on_nfs_grow_by_tools_of_running_guest(self):
        server = nfs_server.Server(self)
        self.check_growth(self.add_backend("nfs", server.options(guests.MACHINE)))

    def test_file_systems_on_lio_grow_by_tools_of_running_guest(self):
        self.check_lvm("lio")

    def test_file_systems_on_nvmet_grow_by_tools_of_running_guest(self):
        self.check_lvm("nvmet")
