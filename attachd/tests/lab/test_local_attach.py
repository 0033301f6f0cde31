# SPDX-License-Identifier: Apache-2.0
"""The local commands on a real host, with the kernel's initiators."""

import json
import secrets

from attachd.tests.lab import deployment, guests

MIB, GIB = 2**20, 2**30
FOLDER = "/mnt/volume"


class LocalAttachTest(deployment.AgentCase):
    """A host without an agent, used by its shell."""

    HOSTS = 1

    def setUp(self):
        super().setUp()
        self.service = deployment.LabDeployment(self, portals=2)

    def type(self, command):
        """Run a command of attachd in a guest, as root, and return what it printed."""
        return self.service.run_attachd(self.a, command)

    def attach(self, volume, options=""):
        """Attach a volume and return the output of the command."""
        result = json.loads(
            self.type(f"local-attach {volume} --connector-type kernel -f json {options}")
        )
        self.a.guest.path = result["path"]
        return result

    def listed(self):
        return json.loads(self.type("local-list -f json"))

    def test_file_system_is_created_mounted_and_restored_after_power_cut(self):
        volume = self.service.api.create_volume()
        result = self.attach(volume, f"--mkfs ext4 --mountpoint {FOLDER}")
        data = secrets.token_bytes(MIB)
        self.a.guest.run(f"cat > {FOLDER}/file; sync", data)
        (attachment,) = self.service.attachments_of(volume)
        self.assertEqual(
            ("attached", result["attachment_id"], self.a.name),
            (attachment["status"], attachment["id"], attachment["attached_host"]),
        )
        self.a.guest.crash()
        self.a.guest.boot()
        (entry,) = self.listed()
        self.assertFalse(entry["Present"])
        self.type("local-restore")
        self.assertEqual(data, self.a.guest.run(f"cat {FOLDER}/file"))

        # A working directory keeps the mount busy.
        self.a.guest.run(
            f"cd {FOLDER}; sleep 1000 > /dev/null 2>&1 < /dev/null & echo $! > /run/user"
        )
        refused = self.assertRaises(guests.Failed, self.type, f"local-detach {volume}")
        self.assertIn("sleep", f"{refused}")
        self.assertEqual(data, self.a.guest.run(f"cat {FOLDER}/file"))
        self.a.guest.run("kill $(cat /run/user)")
        self.type(f"local-detach {volume}")
        self.assert_nothing_is_left(self.service, volume)

    def test_ext4_grows_with_its_volume_on_request_and_at_attach(self):
        volume = self.service.api.create_volume()
        # Only here: the machine that runs the tests may lack the right that ext4 wants.
        self.attach(volume, f"--mkfs ext4 --mountpoint {FOLDER}")
        data = secrets.token_bytes(MIB)
        self.a.guest.run(f"cat > {FOLDER}/file; sync", data)
        self.service.extend(volume, 2)
        grown = json.loads(self.type(f"local-grow {volume} -f json"))
        self.assertEqual(2 * GIB, grown["size_bytes"])
        self.assertEqual(("ext4", 2 * GIB), (grown["filesystem"], grown["filesystem_bytes"]))
        self.assertEqual(data, self.a.guest.run(f"cat {FOLDER}/file"))
        self.type(f"local-detach {volume}")

        self.service.extend(volume, 3)
        self.attach(volume, f"--mountpoint {FOLDER}")
        (entry,) = self.listed()
        self.assertIn("ext4 has 2 of 3 GiB. Let it grow: attachd local-grow", entry["Growth"])
        grown = json.loads(self.type(f"local-grow --grow-fs {volume} -f json"))
        self.assertEqual(3 * GIB, grown["filesystem_bytes"])
        self.assertEqual(data, self.a.guest.run(f"cat {FOLDER}/file"))
        self.type(f"local-detach {volume}")
        self.assert_nothing_is_left(self.service, volume)

    def test_multipath_uses_all_paths_if_requested(self):
        volume = self.service.api.create_volume()
        self.attach(volume, "--multipath --enforce-multipath")
        self.assertEqual(2, len(self.a.guest.sessions()))
        self.service.portals[0].refuse()
        data = secrets.token_bytes(MIB)
        self.a.guest.write(0, data)
        self.assertEqual(data, self.a.guest.read(0, MIB))
        self.service.portals[0].pass_on()
        self.type(f"local-detach {volume}")
        self.assert_nothing_is_left(self.service, volume)

    def test_reader_cannot_write(self):
        volume = self.service.api.create_volume()
        self.attach(volume, "--mode ro")
        self.assertEqual(bytes(guests.BLOCK), self.a.guest.read(0, guests.BLOCK))
        self.assertRaises(guests.Failed, self.a.guest.write, 0, b"\1" * guests.BLOCK)
        self.a.guest.run(f"blockdev --setrw {self.a.guest.path} || true")
        self.assertRaises(guests.Failed, self.a.guest.write, 0, b"\1" * guests.BLOCK)
        self.type(f"local-detach {volume}")
        self.assert_nothing_is_left(self.service, volume)

    def test_failed_attach_leaves_nothing(self):
        volume = self.service.api.create_volume()
        for portal in self.service.portals:
            portal.refuse()
        self.assertRaises(guests.Failed, self.attach, volume)
        for portal in self.service.portals:
            portal.pass_on()
        self.assertEqual([], self.listed())
        self.assert_nothing_is_left(self.service, volume)
