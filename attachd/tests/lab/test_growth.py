# SPDX-License-Identifier: Apache-2.0
"""File systems that grow with attached volumes, on a host with an agent and with local-attach."""

import json
from pathlib import Path
import secrets

from attachd.ceph import bindings
from attachd.tests.fixtures import ceph, requirements
from attachd.tests.lab import ceph_forwarder, deployment, storage_node

MIB, GIB = 2**20, 2**30
FOLDER, FILES = "/mnt/volume", "/var/lib/volumes"
GROW = "grow_filesystems = ext4, xfs"


class FilesystemCase(deployment.AgentCase):
    """A file system that the first host has mounted."""

    def make(self, kind):
        """Make a file system on the device, mount it and write a file; return its data.

        :param kind: ext4 or xfs
        """
        force = {"ext4": "-F", "xfs": "-f"}[kind]
        self.a.guest.run(f"mkfs.{kind} -q {force} {self.a.guest.path}")
        self.mount()
        return self.write()

    def mount(self):
        self.a.guest.run(f"mkdir -p {FOLDER} && mount {self.a.guest.path} {FOLDER}")

    def unmount(self):
        self.a.guest.run(f"umount {FOLDER}")

    def write(self):
        """Write a file to the mounted file system, and return its data."""
        data = secrets.token_bytes(MIB)
        self.a.guest.run(f"cat > {FOLDER}/file; sync", data)
        return data

    def wait_until_grown(self, size_gib, data):
        """Wait until the file system has the size of its device, and check the file."""
        deployment.wait_for(lambda: self.filesystem_size() > size_gib * GIB - 150 * MIB)
        self.assertEqual(size_gib * GIB, self.device_size())
        # Past the page cache.
        self.a.guest.run("echo 3 > /proc/sys/vm/drop_caches")
        self.assertEqual(data, self.a.guest.run(f"cat {FOLDER}/file"))

    def filesystem_size(self):
        """Return the size of the mounted file system in bytes, without what it needs itself."""
        return int(self.a.guest.run(f"df --output=size --block-size=1 {FOLDER} | tail -1"))

    def device_size(self):
        """Return the size of the device in bytes."""
        return int(self.a.guest.run(f"blockdev --getsize64 {self.a.guest.path}"))

    def attach_locally(self, service, volume, options):
        """Attach and mount a volume by a command, and return what it printed."""
        line = f"local-attach {volume} --mountpoint {FOLDER} {options} -f json"
        result = json.loads(service.run_attachd(self.a, line))
        self.a.guest.path = result["path"]
        return result


class GrowthTest(FilesystemCase, deployment.StorageNodeCase):
    """A host, and storage of each driver: this machine's, the host's own, or a storage node's."""

    def lvm(self, target):
        """Return a service whose volumes are at the storage node.

        :param target: the option lvm_target
        """
        portals = [f"{self.node.address}:{storage_node.PORTS[target]}"]
        options = {"lvm_target": target, "lvm_portals": portals}
        options["lvm_thin_pool"] = storage_node.POOL
        options["lvm_volume_group"] = storage_node.GROUP
        self.addCleanup(self._remove_volumes, options)
        return deployment.RemoteDeployment(self, self.node.guest, "lvm", options)

    def _remove_volumes(self, options):
        self.node.start(**options)
        self.node.remove_all()
        self.node.stop()

    def file(self):
        """Return a service whose volumes are files of the host."""
        options = {"file_loop_devices": "always", "file_folder": FILES}
        self.addCleanup(self.a.guest.run, f"losetup --detach-all; rm -rf {FILES}")
        return deployment.RemoteDeployment(self, self.a.guest, "file", options)

    def nfs(self):
        """Return a service with a share of this machine."""
        service = deployment.NfsDeployment(self)
        service.unmount_at_end(self.a)
        return service

    def check_agent(self, service):
        """Let mounted file systems grow by an agent that is configured to do it; it goes on."""
        service.start(self.a, GROW)
        volume = service.api.create_volume()
        attachment = service.attach(volume, self.a)
        for size_gib, kind in ((2, "ext4"), (3, "xfs")):
            data = self.make(kind)
            service.extend(volume, size_gib)
            self.wait_until_grown(size_gib, data)
            self.unmount()
        service.detach(attachment)
        self.assert_nothing_is_left(service, volume)

    def check_local_attach(self, service):
        """Let mounted file systems grow by the command local-grow, beside the agent."""
        for kind in ("ext4", "xfs"):
            volume = service.api.create_volume()
            self.attach_locally(
                service, volume, f"--connector-type kernel --mkfs {kind} --assume-empty"
            )
            data = self.write()
            service.extend(volume, 2)
            grown = json.loads(service.run_attachd(self.a, f"local-grow {volume} -f json"))
            self.assertEqual((kind, 2 * GIB), (grown["filesystem"], grown["filesystem_bytes"]))
            self.wait_until_grown(2, data)
            service.run_attachd(self.a, f"local-detach {volume}")
            self.assert_nothing_is_left(service, volume)

    def check(self, service):
        self.check_agent(service)
        self.check_local_attach(service)

    def test_file_systems_on_tgt_grow_by_agent_and_by_command(self):
        self.check(deployment.LabDeployment(self))

    def test_file_systems_on_lio_grow_by_agent_and_by_command(self):
        self.check(self.lvm("lio"))

    def test_file_systems_on_nvmet_grow_by_agent_and_by_command(self):
        self.check(self.lvm("nvmet"))

    def test_file_systems_on_file_grow_by_agent_and_by_command(self):
        self.check(self.file())

    def test_file_systems_on_nfs_grow_by_agent_and_by_command(self):
        self.check(self.nfs())


class ImageGrowthTest(FilesystemCase):
    """Images of Ceph, of which QEMU's client shows the size that they had when it opened them."""

    HOSTS = 1

    def setUp(self):
        super().setUp()
        cluster, prefix = ceph.shared(self), ceph.new_prefix()
        cluster.require_statistics(self)
        self.a.guest.run("modprobe fuse")
        requirements.require_ceph_modules(self)
        for name in ("rados", "rbd"):
            (module,) = Path(bindings.SYSTEM_PACKAGES).glob(f"{name}.*.so")
            self.install(module)
        self.install(Path(requirements.require_tool(self, "qemu-storage-daemon")))
        ceph_forwarder.start(self, cluster, self.a.guest)
        self.service = deployment.Service(self, "rbd", cluster.options(prefix))
        self.volume = self.service.api.create_volume()

    def install(self, file):
        """Copy a file to the guest, whose Debian has the libraries and QEMU's modules for it."""
        self.a.guest.run(f"mkdir -p {file.parent} && cat > {file}", file.read_bytes())
        self.a.guest.run(f"chmod 755 {file}")

    def test_file_systems_grow_by_agent_when_attached_again(self):
        self.service.start(self.a, f"connector_type = user-space\n{GROW}")
        attachment = self.service.attach(self.volume, self.a)
        for size_gib, kind in ((2, "ext4"), (3, "xfs")):
            data = self.make(kind)
            self.service.extend(self.volume, size_gib)
            self.unmount()
            self.service.detach(attachment)
            attachment = self.service.attach(self.volume, self.a)
            self.mount()
            self.wait_until_grown(size_gib, data)
            self.unmount()
        self.service.detach(attachment)
        self.assert_nothing_is_left(self.service, self.volume)

    def test_ext4_grows_by_command_when_attached_again(self):
        self.attach_locally(
            self.service, self.volume, "--connector-type user-space --mkfs ext4 --assume-empty"
        )
        data = self.write()
        self.service.extend(self.volume, 2)
        self.service.run_attachd(self.a, f"local-detach {self.volume}")
        grown = self.attach_locally(
            self.service, self.volume, "--connector-type user-space --grow-fs"
        )
        self.assertEqual(("ext4", 2 * GIB), (grown["filesystem"], grown["filesystem_bytes"]))
        self.wait_until_grown(2, data)
        self.service.run_attachd(self.a, f"local-detach {self.volume}")
        self.assert_nothing_is_left(self.service, self.volume)
