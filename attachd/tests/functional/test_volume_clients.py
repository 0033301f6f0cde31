# SPDX-License-Identifier: Apache-2.0
"""Tests of volume actions, clones and user messages with stock clients.

A message requires an error: the test puts a file where a volume is to be created.
"""

import hashlib
import json
from pathlib import Path
import re
import socket
import unittest
import uuid

from attachd.tests.fixtures import cli_commands, deployments, http_client, lifetime
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

    def existing_file(self, name):
        """Return a new file of 1 GiB with data, which can become a volume."""
        (folder,) = self.process.state.rglob("volumes/manageable")
        file = folder / name
        with file.open("wb") as opened:
            opened.write(b"data" * 1000)
            opened.truncate(2**30)
        return file

    def read_attached(self, name):
        """Attach a volume, and return the checksum of what its host reads."""
        api = http_client.Client(f"{self.process.url}/v3")
        body = {"attachment": {"volume_uuid": self.volume(name)["id"]}}
        body["attachment"]["connector"] = {"host": socket.gethostname()}
        body["attachment"]["instance_uuid"] = str(uuid.uuid4())
        made = api.request_json("POST", "/attachments", body)["attachment"]
        read = checksum(Path(made["connection_info"]["device_path"]))
        api.request_json("DELETE", f"/attachments/{made['id']}")
        return read


def checksum(file):
    """Return the checksum of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class OpenStackCommandTest(Case):
    def test_openstack_command_manages_and_unmanages_file_with_its_data(self):
        file = self.existing_file("disk.raw")
        before = checksum(file)
        listed = "openstack --os-volume-api-version 3.8 block storage volume manageable list"
        said = json.loads(self.shell(f"{listed} all-in-one@file --long -f json"))
        self.assertEqual([({"source-name": "disk.raw"}, 1, True)], [_shown(row) for row in said])
        self.shell(
            """
            openstack volume create --remote-source source-name=disk.raw --host all-in-one@file \
                --property a=b --bootable disk
            wait_for disk available
            """
        )
        shown = self.volume("disk")
        self.assertEqual((1, {"a": "b"}), (shown["size"], shown["properties"]))
        self.assertFalse(file.exists())
        self.assertEqual(before, self.read_attached("disk"))
        self.shell("openstack volume delete --remote disk")
        former = file.with_name(f"volume-{shown['id']}")
        wait_until(lambda: former.exists() and not self.shell("openstack volume list -f value"))
        self.assertEqual(before, checksum(former))
        former.unlink()

    def test_openstack_command_prints_why_file_cannot_be_managed(self):
        file = self.existing_file("disk.raw")
        create = "openstack volume create --remote-source source-name=disk.raw disk 2>&1"
        with file.open("rb"):
            said = self.shell(f"{create} --host all-in-one@file", expected=1)
        self.assertIn("a process has it open", said)
        said = self.shell(f"{create} --cluster any", expected=1)
        self.assertIn("Cluster 'any' not found", said)
        file.unlink()

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


def _shown(row):
    """Return what a row of a list of objects has, which the command prints as JSON."""
    return row["reference"], row["size"], row["safe_to_manage"]


class CinderCommandTest(Case):
    def test_cinder_command_manages_and_unmanages_file_with_its_data(self):
        file = self.existing_file("disk.raw")
        before = checksum(file)
        for version in ("3.8", "3.71"):
            said = self.shell(
                f"""
                cinder --os-volume-api-version {version} manageable-list all-in-one@file
                cinder --os-volume-api-version {version} manage all-in-one@file#file disk.raw \
                    --name disk --metadata a=b --bootable
                wait_for disk available
                cinder --os-volume-api-version {version} manageable-list all-in-one@file \
                    --sort size:asc --limit 5
                """
            )
            self.assertRegex(said, r"\| \{'source-name': 'disk.raw'\} +\| 1 +\| True +\| - ")
            self.assertRegex(said, r"bootable +\| true")
            shown = self.volume("disk")
            self.assertRegex(said, rf"\| 1 +\| False +\| already managed +\| {shown['id']} ")
            self.assertEqual(before, self.read_attached("disk"))
            self.shell("cinder unmanage disk")
            former = file.with_name(f"volume-{shown['id']}")
            wait_until(former.exists)
            self.assertEqual(before, checksum(former))
            former.rename(file)
        file.unlink()

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
        said = self.shell("cinder manage all-in-one@file nothing 2>&1", expected=1)
        self.assertIn("no such file", said)

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
