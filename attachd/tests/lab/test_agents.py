# SPDX-License-Identifier: Apache-2.0
"""Tests of agents on virtual machines, which attach volumes by host name."""

import hashlib
import http.client
import secrets
import threading

from attachd.tests.lab import deployment, guests

MIB = 2**20
FOLDER = "/mnt/volume"
LOGGED_IN = "compgen -G '/sys/class/iscsi_session/*' > /dev/null"
HAS_DISK = "compgen -G '/sys/class/scsi_disk/*' > /dev/null"


class Watch:
    """Polls an attachment and its volume.

    :ivar seen: each observed pair of their statuses
    """

    def __init__(self, test, service, attachment):
        self._service, self._attachment = service, attachment
        self.seen = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._check, daemon=True)
        test.addCleanup(self.end)
        self._thread.start()

    def _check(self):
        while not self._ending.wait(0.5):  # between two looks; no result depends on it
            now = self._service.attachment(self._attachment)
            volume = self._service.api.volume(now["volume_id"])
            self.seen.add((now["status"], volume["status"]))

    def end(self):
        """End it, and return the observed statuses."""
        self._ending.set()
        self._thread.join()
        return self.seen


class AgentsTest(deployment.AgentCase):
    """Calls of users of one service with two hosts, and their results."""

    def start(self, **settings):
        """Start a service."""
        self.service = deployment.LabDeployment(self, **settings)
        return self.service

    def write_files(self, host):
        """Make a file system with a file on the device of a host; returns the file's checksum."""
        data = secrets.token_bytes(MIB)
        host.guest.run(f"mkfs.ext4 -q {host.guest.path}")
        self.mount(host)
        host.guest.run(f"cat > {FOLDER}/file; sync", data)
        return hashlib.sha256(data).hexdigest()

    def mount(self, host):
        host.guest.run(f"mkdir -p {FOLDER}; mount {host.guest.path} {FOLDER}")

    def unmount(self, host):
        host.guest.run(f"umount {FOLDER}")

    def assert_reads(self, host, checksum):
        """Check that the file exists, bypassing all caches."""
        self.mount(host)
        said = host.guest.run(f"sha256sum {FOLDER}/file").decode()
        self.assertEqual(checksum, said.split()[0])
        self.unmount(host)

    def test_volume_moves_between_hosts_with_its_files(self):
        service = self.start()
        service.start(self.a)
        service.start(self.b)
        volume = service.api.create_volume()

        attachment = service.attach(volume, self.a)
        self.assertEqual("attached", attachment["status"])
        self.assertEqual(self.a.name, attachment["attached_host"])
        checksum = self.write_files(self.a)
        refused = service.ask_to_detach(attachment)
        self.assertEqual(http.client.CONFLICT, refused.status, refused)
        self.assertIn(f"the mount of {self.a.guest.path} at {FOLDER}", refused.message)
        self.assertEqual("attached", service.attachment(attachment)["status"])
        self.assertEqual(1, len(self.a.guest.sessions()))
        self.unmount(self.a)
        self.assertEqual(1, len(service.tgtd.targets()))
        service.detach(attachment)
        self.assert_has_nothing(self.a)
        self.assertEqual([], service.tgtd.targets())

        attachment = service.attach(volume, self.b)
        self.assert_reads(self.b, checksum)
        service.detach(attachment)
        self.assert_nothing_is_left(service, volume)

    def test_device_is_restored_after_power_cut(self):
        self._go_through(self.a.crash)

    def test_device_is_restored_after_reboot(self):
        self._go_through(self.a.reboot)

    def _go_through(self, trouble):
        service = self.start()
        service.start(self.a)
        other, volume = service.api.create_volume(), service.api.create_volume()
        former = service.attach(other, self.a)
        attachment = service.attach(volume, self.a)
        checksum = self.write_files(self.a)
        # Next time it is the first disk, and has another path.
        service.detach(former)
        watch = Watch(self, service, attachment)
        trouble()
        service.wait_for_device(attachment, self.a)
        self.assertNotEqual(attachment["device"], self.a.guest.path)
        self.assert_reads(self.a, checksum)
        self.assertEqual({("attached", "in-use")}, watch.end())
        service.detach(attachment)
        self.assert_nothing_is_left(service, other, volume)

    def test_unreachable_host_is_named_and_continues_later(self):
        # Long enough for what is only slow, on guests without hardware to help them.
        service = self.start(work=60, agent="down_time = 180")
        service.start(self.a)
        first, second, third = (service.api.create_volume() for _ in range(3))
        leaving = service.attach(first, self.a)
        service.queue.refuse()

        late = service.ask_to_attach(second, self.a)
        self.assertIn(late.status, {http.client.GATEWAY_TIMEOUT, http.client.CONFLICT}, late)
        self.assertIn(f"host {self.a.name}", late.message)
        late = service.ask_to_detach(leaving)
        self.assertIn(late.status, {http.client.GATEWAY_TIMEOUT, http.client.CONFLICT}, late)
        self.assertIn(f"host {self.a.name}", late.message)
        deployment.wait_for(lambda: not service.is_alive(self.a))
        refused = service.ask_to_attach(third, self.a)
        self.assertEqual(http.client.CONFLICT, refused.status, refused)
        self.assertIn(f"The agent of host {self.a.name} has not reported", refused.message)
        self.assertEqual(1, len(self.a.guest.sessions()))

        service.queue.pass_on()
        service.wait_until_alive(self.a)
        deployment.wait_for(lambda: not service.attachments_of(first))
        (coming,) = service.attachments_of(second)
        service.wait_for_device(coming, self.a)
        deployment.wait_for(lambda: service.attachment(coming)["status"] == "attached")
        self.assertEqual(1, len(self.a.guest.sessions()))
        self.a.guest.write(0, b"\1" * guests.BLOCK)
        service.detach(coming)
        self.assert_nothing_is_left(service, first, second, third)

    def test_agent_killed_during_connect_continues_after_start(self):
        service = self.start(work=15)
        service.start(self.a)
        volume = service.api.create_volume()
        killing = self.a.kill_when(LOGGED_IN)
        service.ask_to_attach(volume, self.a)
        self.assertEqual(0, killing.end())
        killing.kill()
        self.a.start()
        (attachment,) = service.attachments_of(volume)
        deployment.wait_for(lambda: service.attachment(attachment)["status"] == "attached")
        service.wait_for_device(attachment, self.a)
        self.assertEqual(1, len(self.a.guest.sessions()))
        checksum = self.write_files(self.a)
        self.unmount(self.a)
        self.assert_reads(self.a, checksum)
        service.detach(attachment)
        self.assert_nothing_is_left(service, volume)

    def test_agent_killed_during_disconnect_continues_after_start(self):
        service = self.start(work=15)
        service.start(self.a)
        volume = service.api.create_volume()
        attachment = service.attach(volume, self.a)
        killing = self.a.kill_when(f"! {HAS_DISK}")
        service.ask_to_detach(attachment)
        self.assertEqual(0, killing.end())
        killing.kill()
        self.a.start()
        deployment.wait_for(lambda: not service.attachments_of(volume))
        self.assert_nothing_is_left(service, volume)

    def test_one_of_two_paths_suffices(self):
        service = self.start(portals=2)
        service.start(self.a, "multipath = true\nenforce_multipath = true")
        volume = service.api.create_volume()
        attachment = service.attach(volume, self.a)
        self.assertEqual(b"mpath", self.kind(self.a))
        self.assertEqual(2, len(self.a.guest.sessions()))
        self.assertEqual(2, self.paths(self.a))
        writer = guests.Writer(self, self.a.guest, 0)
        for cut, other in (service.portals, service.portals[::-1]):
            cut.refuse()
            deployment.wait_for(lambda: self.paths(self.a) == 1)
            writer.go_on()
            self.assertGreater(other.open, 0)
            cut.pass_on()
            deployment.wait_for(lambda: self.paths(self.a) == 2)
            writer.go_on()
        self.assertGreater(writer.end(), 0)
        service.detach(attachment)
        self.assert_nothing_is_left(service, volume)

    def test_extend_reaches_both_paths_which_survive_power_cut(self):
        service = self.start(portals=2)
        service.start(self.a, "multipath = true")
        volume = service.api.create_volume()
        attachment = service.attach(volume, self.a)
        data = secrets.token_bytes(MIB)
        self.a.guest.write(512 * MIB, data)
        writer = guests.Writer(self, self.a.guest, 0)
        body = {"os-extend": {"new_size": 2}}
        service.api.request_json("POST", f"/volumes/{volume}/action", body)
        service.api.wait_for_size(volume, 2)
        deployment.wait_for(lambda: self.size(self.a) == 2048 * MIB)
        writer.go_on()
        self.assertGreater(writer.end(), 0)
        self.a.guest.write(2047 * MIB, data)
        self.a.crash()
        service.wait_for_device(attachment, self.a)
        deployment.wait_for(lambda: self.paths(self.a) == 2)
        self.assertEqual((b"mpath", 2048 * MIB), (self.kind(self.a), self.size(self.a)))
        for place in (512 * MIB, 2047 * MIB):
            self.assertEqual(data, self.a.guest.read(place, MIB))
        service.detach(attachment)
        self.assert_nothing_is_left(service, volume)

    def size(self, host):
        """Return the size of the device in bytes."""
        return int(host.guest.run(f"blockdev --getsize64 {host.guest.path}"))

    def kind(self, host):
        return host.guest.run(
            f"lsblk --nodeps --noheadings --output TYPE {host.guest.path}"
        ).strip()

    def paths(self, host):
        """Count the paths that multipathd uses."""
        shown = host.guest.run("multipathd show paths raw format '%t %o'").decode().splitlines()
        return shown.count("active running")

    def test_reader_cannot_write_volume_of_writer(self):
        service = self.start()
        service.start(self.a)
        service.start(self.b)
        kind = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
        service.api.request_json("POST", "/types", {"volume_type": kind})
        volume = service.api.create_volume(volume_type="shared")
        first = service.attach(volume, self.a)
        second = service.attach(volume, self.b, mode="ro")
        self.assertEqual(("rw", "ro"), (first["attach_mode"], second["attach_mode"]))
        data = secrets.token_bytes(MIB)
        self.a.guest.write(0, data)
        self.assertEqual(data, self.b.guest.read(0, MIB))
        self.assertRaises(guests.Failed, self.b.guest.write, 0, b"\1" * guests.BLOCK)
        self.b.guest.run(f"blockdev --setrw {self.b.guest.path} || true")
        self.assertRaises(guests.Failed, self.b.guest.write, 0, b"\1" * guests.BLOCK)
        self.assertEqual(data, self.a.guest.read(0, MIB))
        service.detach(second)
        self.assert_has_nothing(self.b)
        self.assertEqual(data, self.a.guest.read(0, MIB))
        service.detach(first)
        self.assert_nothing_is_left(service, volume)
