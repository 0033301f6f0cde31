# SPDX-License-Identifier: Apache-2.0
"""The nfs driver with hosts that mount the share: os-brick, the kernel's client, loop devices."""

import hashlib
import http.client
import secrets

from testtools import content

from attachd.tests.lab import deployment, guests

MIB = 2**20
BLOCKS = 64
FOLDER = "/mnt/volume"


class NfsTest(deployment.AgentCase):
    """Hosts with agents, and a share."""

    def setUp(self):
        super().setUp()
        self.service = deployment.NfsDeployment(self)
        for host in self.hosts:
            self.service.unmount_at_end(host)
            self.service.start(host)
        self.volume = self.service.api.create_volume()

    def assert_nothing_is_on_share(self):
        """Check that the volume can be deleted, and that nothing is left of it."""
        self.assert_nothing_is_left(self.service, self.volume)
        left = [path for path in self.service.folder.rglob("*") if not path.is_dir()]
        self.assertEqual([], left)

    def test_volume_moves_between_hosts_with_its_files(self):
        attachment = self.service.attach(self.volume, self.a)
        self.assertEqual("attached", attachment["status"])
        data = secrets.token_bytes(MIB)
        self.a.guest.run(f"mkfs.ext4 -q {self.a.guest.path} && mkdir -p {FOLDER}")
        self.a.guest.run(f"mount {self.a.guest.path} {FOLDER}")
        self.a.guest.run(f"cat > {FOLDER}/file; sync", data)
        refused = self.service.ask_to_detach(attachment)
        self.assertEqual(http.client.CONFLICT, refused.status, refused)
        self.assertIn(f"the mount of {self.a.guest.path} at {FOLDER}", refused.message)
        self.a.guest.run(f"umount {FOLDER}")
        self.service.detach(attachment)
        self.assert_has_nothing(self.a)

        attachment = self.service.attach(self.volume, self.b)
        self.b.guest.run(f"mkdir -p {FOLDER} && mount {self.b.guest.path} {FOLDER}")
        checksum = self.b.guest.run(f"sha256sum {FOLDER}/file").decode().split()[0]
        self.assertEqual(hashlib.sha256(data).hexdigest(), checksum)
        self.b.guest.run(f"umount {FOLDER}")
        self.service.detach(attachment)
        self.assert_nothing_is_on_share()

    def test_volume_grows_while_host_writes_and_is_restored_after_power_cut(self):
        attachment = self.service.attach(self.volume, self.a)
        writer = guests.Writer(self, self.a.guest, 12 * MIB)
        self.service.extend(self.volume, 2)
        deployment.wait_for(lambda: self.size() == 2048 * MIB)
        writer.go_on()
        self.assertGreater(writer.end(), 0)
        data = secrets.token_bytes(MIB)
        self.a.guest.write(2047 * MIB, data)
        self.a.crash()
        self.service.wait_for_device(attachment, self.a)
        self.assertEqual(2048 * MIB, self.size())
        self.assertEqual(data, self.a.guest.read(2047 * MIB, MIB))
        self.service.detach(attachment)
        self.assert_nothing_is_on_share()

    def test_discarded_blocks_are_freed_on_the_share(self):
        """NFS 4.2 has holes: a discard of the loop device reaches the server."""
        attachment = self.service.attach(self.volume, self.a)
        guest = self.a.guest
        guest.run(f"dd if=/dev/urandom of={guest.path} bs=1M count=64 oflag=direct status=none")
        self.assertGreaterEqual(self.allocated(), 64 * MIB)
        guest.run(f"blkdiscard --offset {8 * MIB} --length {56 * MIB} {guest.path}")
        # Seen: 16 MiB; what the server keeps allocated at the edges of a hole is its own choice.
        self.assertLessEqual(self.allocated(), 32 * MIB)
        self.assertNotEqual(bytes(MIB), guest.read(7 * MIB, MIB))
        self.assertEqual(bytes(MIB), guest.read(8 * MIB, MIB))
        self.service.detach(attachment)
        self.assert_nothing_is_on_share()

    def allocated(self):
        """Return how many bytes the files of the share occupy."""
        files = [path for path in self.service.folder.rglob("*") if path.is_file()]
        return sum(path.stat().st_blocks * 512 for path in files)

    def test_writers_are_stopped_at_the_end_of_the_lease(self):
        specs = {"on_lost_agent": "fence", "lost_agent_timeout": "60"}
        kind = {"name": "leased", "extra_specs": specs}
        self.service.api.request_json("POST", "/types", {"volume_type": kind})
        volume = self.service.api.create_volume(volume_type="leased")
        attachment = self.service.attach(volume, self.a)
        deployment.wait_for_lease(self.service, self.a, 60)
        (file,) = self.service.folder.glob(f"exports/{volume}/*")
        flood = guests.Flood(self.a.guest, 1, BLOCKS)
        deployment.wait_for(lambda: self.written(file).strip(b"\0"))
        self.service.queue.refuse()
        self.assertIn("Operation not permitted", flood.wait_for_error())
        self.assertFalse(self.service.is_fenced(self.a))
        deployment.wait_for(lambda: self.service.is_fenced(self.a))
        before = self.written(file)
        self.a.guest.run(f"sync; sync {self.a.guest.path}")
        self.assertTrue(before == self.written(file))

        # Nothing ends the access of the host, which may go on as soon as the fence is lifted.
        self.service.queue.pass_on()
        self.service.wait_until_alive(self.a)
        self.service.unfence(self.a)
        self.service.wait_for_device(attachment, self.a)
        self.a.guest.write(0, bytes(guests.BLOCK))
        self.service.detach(attachment)
        self.assert_nothing_is_left(self.service, volume)

    def test_host_follows_no_link_that_another_host_has_put_on_the_share(self):
        attachment = self.service.attach(self.volume, self.a)
        mounts = self.a.guest.run("grep /run/attachd/mnt/ /proc/self/mountinfo").decode()
        for option in ("nosuid", "nodev", "noexec", "nosymfollow"):
            self.assertIn(option, mounts.split(" - ", maxsplit=1)[0])
        self.a.guest.write(0, bytes(range(256)) * 16)
        (file,) = self.service.folder.glob(f"exports/{self.volume}/*")
        aside = file.with_name("aside")
        # The second host has the whole share, as each host has.
        (share,) = (line.split()[4] for line in mounts.splitlines())
        self.service.detach(self.service.attach(self.service.api.create_volume(), self.b))
        folder = f"{share}/exports/{self.volume}"
        self.b.guest.run(f"mv {folder}/{file.name} {folder}/aside")
        self.b.guest.run(f"ln -s /etc/shadow {folder}/{file.name}")
        shadow = self.a.guest.run("sha256sum /etc/shadow")
        self.a.crash()
        deployment.wait_for(lambda: "administrator of the storage" in self.a.log())
        self.assertEqual(b"", self.a.guest.run("losetup --list --noheadings"))
        self.assertEqual(shadow, self.a.guest.run("sha256sum /etc/shadow"))

        self.b.guest.run(f"mv -T {folder}/aside {folder}/{file.name}")
        self.assertFalse(aside.exists())
        self.service.wait_for_device(attachment, self.a)
        self.assertEqual(bytes(range(256)) * 16, self.a.guest.read(0, 4096))
        self.b.guest.run(f"mv {folder}/{file.name} {folder}/aside")
        self.b.guest.run(f"ln -s /etc/shadow {folder}/{file.name}")
        self.service.detach(attachment)
        self.assert_has_nothing(self.a)

    def test_file_that_another_host_has_removed_is_an_error_until_it_is_forced(self):
        attachment = self.service.attach(self.volume, self.a)
        kept, data = self.service.api.create_volume(), secrets.token_bytes(MIB)
        self.service.attach(kept, self.b)
        self.b.guest.write(0, data)
        (file,) = self.service.folder.glob(f"exports/{self.volume}/*")
        for path in [path for path in self.service.folder.rglob("*") if path.samefile(file)]:
            path.unlink()
        # It has the file open, and forgets it.
        self.service.restart_server()
        error = self.assertRaises(guests.Failed, self.a.guest.write, 0, bytes(guests.BLOCK))
        self.addDetail("error", content.text_content(f"{error}"))
        self.addDetail("messages", content.text_content(self.a.messages()))

        refused = self.service.ask_to_detach(attachment)
        self.assertIn(f"has no volume {self.volume}", refused.message)
        self.assertEqual("error_detaching", self.service.attachment(attachment)["status"])
        self.assert_has_nothing(self.a)
        path = f"/attachments/{attachment['id']}?force=true"
        self.service.api.request_json("DELETE", path)
        self.assertEqual(data, self.b.guest.read(0, MIB))

    def written(self, file):
        """Return what a writer has written to the file of a volume."""
        with file.open("rb") as opened:
            return opened.read(BLOCKS * guests.BLOCK)

    def size(self):
        """Return the size of the device in bytes."""
        return int(self.a.guest.run(f"blockdev --getsize64 {self.a.guest.path}"))
