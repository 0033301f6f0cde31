# SPDX-License-Identifier: Apache-2.0
"""Attached volumes that grow: what nova-compute is asked to do, and what guests see.

test_libvirt_secrets.py has guests with volumes on Ceph, test_kernel_host.py guests on a host that
mounts shares and has initiators.
"""

from attachd.tests.nova.case import COMPUTES, NovaCase
from attachd.tests.nova.file_systems import GIB, FilesystemCase
from attachd.tests.nova.libvirt_host import HOST, LibvirtCase
from attachd.tests.wait import wait_until


class ExtendTest(NovaCase):
    def sizes_shown(self, host, volume):
        """Return the sizes that nova-compute has been asked to show to servers of a host."""
        return [call["size"] for call in self.cloud.calls(host, "extend", volume)]

    def wait_until_shown(self, host, volume, *sizes):
        """Wait until nova-compute has been asked to show these sizes in GiB, and no others."""
        expected = [size * GIB for size in sizes]
        wait_until(lambda: self.sizes_shown(host, volume) == expected)

    def wait_until_done(self, server):
        """Wait until Nova has finished the extension of a volume of a server."""
        wait_until(lambda: self.action_result(server, "extend_volume") == "Success")

    def messages(self, volume):
        path = f"/messages?resource_uuid={volume}"
        return [item["user_message"] for item in self.admin.ok("volume", "GET", path)["messages"]]

    def test_extend_is_shown_to_running_server(self):
        for vtype in ("disk", "iscsi"):
            with self.subTest(vtype):
                server, volume = self.server_with_volume(vtype=vtype)
                self.extend(volume, 2)
                self.wait_until_shown(COMPUTES[0], volume, 2)
                self.extend(volume, 3)
                self.wait_until_shown(COMPUTES[0], volume, 2, 3)
                self.wait_until_done(server)
                self.assertEqual("in-use", self.admin.get_volume(volume)["status"])
                self.assert_agreed()

    def test_extend_is_shown_to_each_server_of_multiattach_volume(self):
        volume = self.admin.volume("disk-multi")
        for host in COMPUTES:
            self.admin.add(self.admin.server(host=host), volume)
        self.extend(volume, 2)
        for host in COMPUTES:
            self.wait_until_shown(host, volume, 2)
        self.assert_agreed()

    def test_extend_while_nova_compute_is_down_is_shown_when_it_is_back(self):
        _server, volume = self.server_with_volume()
        self.kill_compute(COMPUTES[0])
        self.extend(volume, 2)
        self.admin.volume_is(volume, "in-use")
        self.restart_compute(COMPUTES[0])
        self.wait_until_shown(COMPUTES[0], volume, 2)
        self.assert_agreed()

    def test_extend_for_shelved_server_asks_nothing_of_compute(self):
        server = self.admin.server(host=COMPUTES[0])
        self.admin.act(server, "shelve")
        self.admin.server_is(server, "SHELVED_OFFLOADED")
        volume = self.admin.volume("disk")
        self.admin.add(server, volume)
        self.extend(volume, 2)
        wait_until(lambda: self.admin.get_volume(volume)["size"] == 2)
        self.admin.remove(server, volume)
        self.assertIsNone(self.action_result(server, "extend_volume"))
        self.assertEqual([], self.messages(volume))
        self.assert_agreed()

    def test_extend_for_server_unknown_to_compute_leaves_message(self):
        volume = self.admin.volume("disk")
        unknown = "9c1f5e0a-7f43-4a3a-93ae-04a0d9f2c8b5"
        connector = {"host": COMPUTES[0], "initiator": "iqn.2026-01.org.example:compute1"}
        body = {"volume_uuid": volume, "instance_uuid": unknown, "connector": connector}
        path = "/attachments"
        made = self.admin.ok("volume", "POST", path, {"attachment": body})["attachment"]["id"]
        self.admin.ok("volume", "POST", f"{path}/{made}/action", {"os-complete": None})
        self.extend(volume, 2)
        wait_until(lambda: self.messages(volume))
        (message,) = self.messages(volume)
        self.assertRegex(message, f"server {unknown}: it does not know the server")


class GuestTest(LibvirtCase):
    def test_guest_sees_device_of_its_host_grow_when_it_is_started_again(self):
        server, volume = self.guest(), self.admin.volume("disk")
        self.admin.add(server, volume)
        self.wait_for_line(server, f"ACCEPT new vdb size={GIB // 512}")
        self.extend(volume, 2)
        # Nova's libvirt driver does not extend a "local" volume.
        wait_until(lambda: self.action_result(server, "extend_volume") == "Error")
        self.assertEqual(2, self.admin.get_volume(volume)["size"])
        self.assertNotIn("ACCEPT size vdb", self.console(server))
        self.admin.act(server, "os-stop")
        self.admin.server_is(server, "SHUTOFF")
        self.admin.act(server, "os-start")
        self.admin.server_is(server, "ACTIVE")
        self.wait_for_line(server, f"ACCEPT new vdb size={2 * GIB // 512}")
        self.assert_agreed()


class GuestFilesystemTest(LibvirtCase, FilesystemCase):
    """Guests of this machine, which has the client of Ceph, and files."""

    def guest_with_file_systems(self, vtype):
        """Return a server, its two volumes, and the checksums of the files that are on them."""
        server = self.start_guest(HOST)
        volumes = [self.admin.volume(vtype) for _ in range(2)]
        for volume in volumes:
            self.admin.add(server, volume)
        return server, volumes, self.wait_for_sizes(server, 1)

    def test_file_systems_on_ceph_grow_by_tools_of_running_guest(self):
        server, volumes, checksums = self.guest_with_file_systems("ceph")
        for volume in volumes:
            self.extend(volume, 2)
        self.assertEqual(checksums, self.wait_for_sizes(server, 2))
        self.assert_agreed()

    def test_file_systems_on_files_grow_by_tools_of_guest_that_is_started_again(self):
        server, volumes, checksums = self.guest_with_file_systems("disk")
        for volume in volumes:
            self.extend(volume, 2)
        for volume in volumes:
            wait_until(lambda: self.admin.get_volume(volume)["size"] == 2)  # noqa: B023
        self.admin.act(server, "os-stop")
        self.admin.server_is(server, "SHUTOFF")
        self.admin.act(server, "os-start")
        self.admin.server_is(server, "ACTIVE")
        self.assertEqual(checksums, self.wait_for_sizes(server, 2))
        self.assert_agreed()
