# SPDX-License-Identifier: Apache-2.0
"""Tests of volume actions, clones and user messages with stock clients.

A message requires an error: the test puts a file where a volume is to be created.
"""

import json
from pathlib import Path
import re
import unittest

from attachd.tests.fixtures import cli_commands, deployments, lifetime
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

MESSAGE = "openstack --os-volume-api-version 3.5 volume message"
WAIT = """
wait_for() {
    for _ in $(seq 100); do
        [ "$(openstack volume show "$1" -f value -c status)" = "$2" ] && return
        sleep 0.2
    done
    echo "$1 is not $2"
    return 1
}
"""


@full_only("clients")
class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.process = deployments.shared_all_in_one(self)

    def shell(self, lines, expected=0):
        """Run commands in another terminal where the settings were pasted."""
        printed = re.findall(r"(?m)^    (.*)$", self.process.output)
        settings = "\n".join(printed[: printed.index("}") + 1])
        lines = f"{settings}\n{WAIT}\n{lines}"
        return cli_commands.run_script(self, self.process, lines, expected, HOME=str(self.folder))

    def volume(self, name):
        return json.loads(self.shell(f"openstack volume show {name} -f json"))

    def file_of(self, name):
        """Return the file that a volume is."""
        found = list(self.process.state.rglob(self.volume(name)["id"]))
        return next(path for path in found if path.parent.name == "volumes")


class OpenStackCommandTest(Case):
    def test_openstack_command_flags_types_and_image_metadata_work(self):
        self.shell(
            """
            openstack volume type create plain; openstack volume type create gold
            openstack volume create --size 1 --type plain disk; wait_for disk available
            openstack volume set --type gold --bootable --read-only disk
            openstack volume set --image-property os_type=linux --image-property a=b disk
            openstack volume unset --image-property a disk
            """
        )
        shown = self.volume("disk")
        self.assertEqual(("gold", "true"), (shown["type"], str(shown["bootable"]).lower()))
        self.assertEqual({"os_type": "linux"}, shown["volume_image_metadata"])
        self.assertEqual({"readonly": "True"}, shown["properties"])
        self.shell("openstack volume set --read-write --non-bootable disk")
        shown = self.volume("disk")
        self.assertEqual("false", str(shown["bootable"]).lower())
        self.assertEqual({"readonly": "False"}, shown["properties"])

    def test_openstack_command_clone_has_the_data_of_its_source(self):
        self.shell("openstack volume create --size 1 disk; wait_for disk available")
        with self.file_of("disk").open("r+b") as file:
            file.seek(700 * 2**20)
            file.write(b"bytes" * 1000)
        self.shell("openstack volume create --source disk --size 2 copy; wait_for copy available")
        self.assertEqual(self.volume("disk")["id"], self.volume("copy")["source_volid"])
        copy = self.file_of("copy")
        self.assertEqual(2 * 2**30, copy.stat().st_size)
        with copy.open("rb") as file:
            file.seek(700 * 2**20)
            self.assertEqual(b"bytes" * 1000, file.read(5000))
        self.assertLess(copy.stat().st_blocks * 512, 2**20)
        self.shell("openstack volume delete disk copy")

    def test_openstack_command_lists_messages(self):
        # Have a volume fail to grow, because its file is gone.
        self.shell("openstack volume create --size 1 disk; wait_for disk available")
        file = self.file_of("disk")
        file.rename(file.with_name("hidden"))
        self.addCleanup(Path.unlink, file.with_name("hidden"))
        self.shell("openstack volume set --size 2 disk; wait_for disk error_extending")
        said = self.shell(f"{MESSAGE} list -f json")
        (message,) = json.loads(said)
        self.assertEqual("VOLUME_VOLUME_007_010", message["Event ID"])
        self.assertEqual(self.volume("disk")["id"], message["Resource UUID"])
        identity = message["ID"]
        self.assertRegex(
            message["User Message"], "^extend volume:The backend could not extend the volume. Have"
        )
        # What it shows is nothing: the SDK looks for "messages" in the answer for one.
        said = self.shell(
            f"""
            {MESSAGE} show {identity} > /dev/null
            {MESSAGE} delete {identity}
            {MESSAGE} list -f value
            """
        )
        self.assertEqual("", said)


class CinderCommandTest(Case):
    def test_cinder_command_volume_actions_work(self):
        said = self.shell(
            """
            cinder type-create plain; cinder type-create gold
            cinder create --name disk --volume-type plain 1; wait_for disk available
            cinder retype disk gold
            cinder set-bootable disk true
            cinder readonly-mode-update disk true
            cinder image-metadata disk set os_type=linux a=b
            cinder image-metadata disk unset a
            cinder image-metadata-show disk
            cinder extend disk 2; wait_for disk available
            cinder show disk
            cinder list --filters glance_metadata="{'os_type': 'linux'}"
            """
        )
        self.assertRegex(said, r"os_type +\| linux")
        self.assertRegex(said, r"volume_type +\| gold")
        self.assertRegex(said, r"bootable +\| true")
        self.assertRegex(said, r"readonly *[=:] *'?True")
        self.assertRegex(said, r"size +\| 2")
        self.shell("cinder reset-state --state error disk; wait_for disk error")
        self.shell("cinder force-delete disk")
        listed = "openstack volume list -f value -c Name"
        wait_until(lambda: "disk" not in self.shell(listed))

    def test_cinder_command_refused_calls_print_the_reason(self):
        self.shell("cinder create --name disk 1; wait_for disk available")
        said = self.shell("cinder migrate disk there@file 2>&1")
        self.assertIn("os-migrate_volume is not supported", said)
        said = self.shell("cinder unmanage disk", expected=1)
        self.assertIn("os-unmanage is not supported", said)

    def test_cinder_command_clones_and_messages_work(self):
        said = self.shell(
            """
            cinder create --name disk 1; wait_for disk available
            cinder create --source-volid $(openstack volume show disk -f value -c id) --name copy
            wait_for copy available
            cinder show copy
            cinder message-list
            """
        )
        self.assertRegex(said, rf"source_volid +\| {self.volume('disk')['id']}")
        file = self.file_of("copy")
        file.unlink()
        self.shell("cinder extend copy 2; wait_for copy error_extending")
        said = self.shell("cinder message-list --event_id VOLUME_VOLUME_007_010")
        identity = re.search(r"\| ([0-9a-f-]{36}) \|", said)[1]
        said = self.shell(f"cinder message-show {identity}; cinder message-delete {identity}")
        self.assertRegex(said, r"message_level +\| ERROR")
        self.assertNotIn(identity, self.shell("cinder message-list"))
