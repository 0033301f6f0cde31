# SPDX-License-Identifier: Apache-2.0
"""Ceph volumes of servers from Compute's calls to the writes of guests, without a Nova.

Guests boot from their volumes, and write to them without an operating system.
"""

import time

import testtools

from attachd.tests.fixtures import compute_deployment
from attachd.tests.fixtures.compute_deployment import ComputeHost, describe, new_server
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_for, wait_until

SECONDS = 3.0  # for which a guest must not write; one that can writes 18 times a second


class Case(testtools.TestCase):
    """A volume with a program, a server and a host."""

    def setUp(self):
        super().setUp()
        self.cloud = compute_deployment.shared(self)
        self.host = ComputeHost(self, self.cloud)
        self.server = new_server()
        self.volume = self.cloud.create_volume()

    def attach(self, volume=None, host=None):
        """Attach a volume, and check that the host has its secret when the answer is there."""
        host = host or self.host
        disk = self.cloud.attach(volume or self.volume, self.server, host.name)
        self.assertIn(disk["attachment_id"], host.secrets())
        self.assertNotIn("keyring", disk)
        return disk

    def start_guest(self, disk, **changes):
        """Start a guest with a volume."""
        done = self.host.libvirt.start_guest(self.server, describe(disk, **changes))
        self.assertEqual(0, done.returncode, done.stderr)

    def attach_guest(self):
        """Attach the volume to a guest that writes to it."""
        disk = self.attach()
        self.start_guest(disk)
        self.cloud.complete(disk)
        self.cloud.wait_for_writes(self.volume)
        return disk

    def count(self, name):
        """Return a number of what the guest has done with its disk."""
        printed = self.host.libvirt.virsh("domblkstat", self.server, "vda").stdout
        return int(printed.split(name)[1].split()[0])

    def assert_silent(self):
        """Check that no number is written for a while."""
        before = self.cloud.number(self.volume)
        time.sleep(SECONDS)  # the guest has to write nothing in it
        self.assertEqual(before, self.cloud.number(self.volume))
        return before

    def assert_clean(self):
        """Wait until no secret and no user of an attachment, and no client is left."""
        wait_for(self.host.secrets, lambda found: not found)
        self.assertEqual((set(), 0), (self.cloud.users(), self.cloud.watches(self.volume)))


@full_only("hosts")
class AttachTest(Case):
    def test_guest_boots_from_volume_and_writes_to_it_until_detach(self):
        disk = self.attach_guest()
        self.assertEqual({disk["attachment_id"]}, self.host.secrets())
        self.assertEqual({disk["attachment_id"]}, self.cloud.users())
        self.assertEqual(0, self.host.libvirt.virsh("destroy", self.server).returncode)
        self.cloud.detach(disk)
        self.cloud.wait_for_volume(self.volume, "available")
        self.assert_clean()

    def test_guest_that_goes_on_after_detach_writes_nothing(self):
        disk = self.attach_guest()
        self.cloud.detach(disk)
        self.assert_silent()
        self.assertIn(self.server, self.host.libvirt.guests())
        self.assert_clean()

    def test_readonly_volume_is_not_written_with_disk_for_writing_either(self):
        self.cloud.set_readonly(self.volume)
        disk = self.attach()
        self.assertEqual("ro", disk["access_mode"])
        for mode in ("ro", "rw"):
            self.start_guest(disk, access_mode=mode)
            # It has booted, and tries to write.
            wait_until(lambda: self.count("wr_total_times"))
            self.assertEqual(0, self.count("wr_bytes"))
            self.assertEqual(0, self.cloud.number(self.volume))
            self.host.libvirt.virsh("destroy", self.server)
        self.cloud.detach(disk)
        self.assert_clean()

    def test_key_of_one_attachment_opens_no_volume_of_another(self):
        disk, other = self.attach(), self.attach(self.cloud.create_volume())
        own = {name: other[name] for name in ("auth_username", "secret_uuid")}
        done = self.host.libvirt.start_guest(self.server, describe(disk, **own))
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, "(?i)not permitted")
        for attached in (disk, other):
            self.cloud.detach(attached)
        self.assert_clean()


@full_only("hosts")
class FenceTest(Case):
    def test_guest_of_fenced_host_that_hangs_is_cut_off_and_volume_goes_elsewhere(self):
        self.attach_guest()
        fenced, other = self.server, ComputeHost(self, self.cloud)
        with self.host.frozen():
            self.cloud.wait_for_writes(self.volume)
            self.fence()
            self.assert_silent()
            self.cloud.wait_for_volume(self.volume, "available")
            self.server = new_server()
            disk = self.attach(host=other)
            done = other.libvirt.start_guest(self.server, describe(disk))
            self.assertEqual(0, done.returncode, done.stderr)
            self.cloud.wait_for_writes(self.volume)
        self.assertEqual({fenced}, self.host.libvirt.guests())
        self.assertEqual({disk["attachment_id"]}, self.cloud.users())
        self.assertEqual(1, self.cloud.watches(self.volume))
        self.cloud.detach(disk)
        self.assert_clean()

    def fence(self):
        path = f"/hosts/{self.host.name}/fence"
        body = {"fence": {"reason": "it hangs"}}

        def is_proved():
            fence = self.cloud.by_admin("POST", path, body, own=True).body["fence"]
            results = {item["result"] for item in fence["attachments"]}
            return results <= {"proved"} and not fence["host"]["attachment_ids"]

        wait_until(is_proved)


@full_only("hosts")
class LiveMigrationTest(Case):
    def test_guest_moves_to_another_libvirt_and_goes_on(self):
        source, target = self.attach_guest(), ComputeHost(self, self.cloud)
        disk = self.cloud.attach_target(self.volume, self.server, target.name)
        self.assertEqual({disk["attachment_id"]}, target.secrets())
        self.assertEqual({source["attachment_id"]}, self.host.secrets())
        before = self.cloud.number(self.volume)
        done = self.host.libvirt.move_guest(self.server, target.libvirt, describe(disk))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(set(), self.host.libvirt.guests())
        self.assertEqual({self.server}, target.libvirt.guests())
        # A guest that had started again would count from 1.
        self.assertGreater(self.cloud.wait_for_writes(self.volume), before)
        self.cloud.complete(disk)
        self.cloud.detach(source)
        wait_for(self.host.secrets, lambda found: not found)
        self.assertEqual({disk["attachment_id"]}, self.cloud.users())
        self.assertEqual(1, self.cloud.watches(self.volume))
        self.assertEqual({disk["attachment_id"]}, target.secrets())
        self.cloud.wait_for_writes(self.volume)
        self.cloud.detach(disk)
        self.assert_clean()

    def test_guest_goes_on_where_it_was_if_migration_fails(self):
        source, target = self.attach_guest(), ComputeHost(self, self.cloud)
        disk = self.cloud.attach_target(self.volume, self.server, target.name)
        # The target has another secret than the source.
        changed = describe(disk, secret_uuid=source["attachment_id"])
        done = self.host.libvirt.move_guest(self.server, target.libvirt, changed)
        self.assertRegex(done.stderr, f"(?i)no secret.*{source['attachment_id']}")
        self.cloud.detach(disk)
        wait_for(target.secrets, lambda found: not found)
        self.assertEqual({source["attachment_id"]}, self.host.secrets())
        self.assertEqual({source["attachment_id"]}, self.cloud.users())
        self.assertEqual({self.server}, self.host.libvirt.guests())
        self.cloud.wait_for_writes(self.volume)
        self.assertEqual(1, self.cloud.watches(self.volume))
        self.cloud.detach(source)
        self.assert_clean()
