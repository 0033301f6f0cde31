# SPDX-License-Identifier: Apache-2.0
"""Tests of stock clients against all-in-one, with the lines that it prints for them."""

from pathlib import Path
import re
import unittest
import uuid

from attachd.tests.fixtures import (
    cli_commands,
    deployments,
    lifetime,
    processes,
    requirements,
    sdk,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

WAIT = """
wait_for() {
    for _ in $(seq 100); do
        [ "$(openstack volume show disk -f value -c status)" = "$1" ] && return
        sleep 0.2
    done
    echo "disk is not $1"
    return 1
}
"""


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.process = deployments.shared_all_in_one(self)

    def printed(self):
        """The indented lines of what it prints: settings, and then an example."""
        lines = re.findall(r"(?m)^    (.*)$", self.process.output)
        end = lines.index("}") + 1
        return "\n".join(lines[:end]), "\n".join(lines[end:])

    def path(self):
        return cli_commands.command_path(self)

    def shell(self, lines, expected=0):
        """Run commands in another terminal where the settings were pasted."""
        settings, _example = self.printed()
        environment = {"PATH": self.path(), "HOME": str(self.folder)}
        lines = f"{settings}\n{WAIT}\n{lines}"
        return cli_commands.run_script(self, self.process, lines, expected, **environment)


@full_only("clients")
class PrintedTest(Case):
    def path(self):
        # The commands as they are installed.
        return processes.environment()["PATH"]

    def test_all_in_one_printed_example_works(self):
        _settings, example = self.printed()
        said = self.shell(example + "\nopenstack volume list -f value -c ID -c Status")
        self.assertRegex(said, r"attaching")
        self.assertRegex(said, r"driver_volume_type='local'")


@full_only("clients")
class OpenStackCommandTest(Case):
    def test_openstack_command_attach_cycle_works(self):
        said = self.shell(
            "openstack volume create --size 1 disk -f value -c id; wait_for available"
        )
        self.assertRegex(said, f"^{UUID}$")
        said = self.shell(
            """
            openstack volume list -f value -c Name -c Status -c Size
            openstack volume set --property colour=blue disk
            openstack volume show disk -f value -c properties
            """
        )
        self.assertEqual(["disk available 1", "{'colour': 'blue'}"], said.splitlines())
        attachment = self.shell("cinder attachment-create disk | awk '$2 == \"id\" {print $4}'")
        self.assertRegex(attachment, f"^{UUID}$")
        said = self.shell(
            f"""
            openstack volume attachment list -f value -c ID -c Status
            openstack volume attachment set {attachment} --host here --mountpoint /dev/vdb \\
                -f value -c Properties
            openstack volume attachment show {attachment} -f value -c Status
            openstack volume attachment complete {attachment}
            openstack volume attachment show {attachment} -f value -c Status
            openstack volume show disk -f value -c status
            openstack volume attachment delete {attachment}
            openstack volume attachment list -f value -c ID
            openstack volume show disk -f value -c status
            openstack volume delete disk
            """
        )
        lines = said.splitlines()
        self.assertEqual(f"{attachment} reserved", lines[0])
        self.assertIn("'driver_volume_type': 'local'", lines[1])
        self.assertEqual(["attaching", "attached", "in-use", "available"], lines[2:])

    def test_openstack_command_attachment_create_requires_compute(self):
        requirements.require_release(self, "python-openstackclient", "10.5")
        # As in the printed advice; when a later openstackclient does without, change both.
        self.shell("openstack volume create --size 1 disk; wait_for available")
        said = self.shell("openstack volume attachment create disk --server here", expected=1)
        self.assertIn("/v3/servers/", said)
        self.assertEqual("", self.shell("openstack volume attachment list -f value"))
        self.assertIn("asks the Compute service for the server", self.process.output)

    def test_openstack_command_operator_queries_work(self):
        said = self.shell(
            """
            openstack volume service list -f value -c Binary -c Host -c State
            openstack availability zone list --volume -f value
            openstack volume type create --property mine:colour=blue gold -f value -c name
            openstack volume type list -f value -c Name
            openstack volume create --type gold --size 1 disk -f value -c type
            """
        )
        self.assertIn("cinder-volume all-in-one@file up", said.splitlines())
        self.assertIn("nova available", said.splitlines())
        self.assertEqual(["gold", "gold"], said.splitlines()[-2:])


class CinderCommandTest(Case):
    def test_cinder_command_attach_cycle_works(self):
        self.shell("cinder create --name disk 1; wait_for available")
        server = str(uuid.uuid4())
        said = self.shell(f"cinder attachment-create disk {server}")
        attachment = re.search(rf"\| id +\| ({UUID})", said)[1]
        self.assertIn(server, said)
        said = self.shell(
            f"""
            cinder attachment-update {attachment} --host here --mountpoint /dev/vdb
            cinder attachment-show {attachment}
            """
        )
        self.assertRegex(said, r"driver_volume_type +\| local")
        self.assertRegex(said, r"status +\| attaching")
        said = self.shell(
            f"""
            cinder attachment-complete {attachment}
            cinder attachment-list
            cinder show disk
            """
        )
        self.assertRegex(said, rf"{attachment} +\| +{UUID} +\| attached")
        self.assertRegex(said, r"status +\| in-use")
        said = self.shell(
            f"""
            cinder attachment-delete {attachment}
            cinder attachment-list
            cinder list
            cinder delete disk
            """
        )
        self.assertNotIn(attachment, said)
        self.assertRegex(said, r"available +\| disk")

    def test_cinder_command_operator_queries_work(self):
        said = self.shell("cinder service-list; cinder get-pools; cinder absolute-limits")
        self.assertRegex(said, r"cinder-volume +\| all-in-one@file")
        self.assertRegex(said, r"all-in-one@file#\w+")
        self.assertIn("maxTotalVolumes", said)


class SdkTest(Case):
    def test_sdk_data_written_through_one_attachment_is_read_through_the_next(self):
        storage = sdk.block_storage(self, self.process.url)
        volume = storage.create_volume(name="disk", size=1)
        storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        for host, expected in (("one", b"\0" * 5), ("two", b"bytes")):
            attachment = storage.create_attachment(volume.id, connector={})
            attachment = storage.update_attachment(attachment, connector={"host": host})
            device = Path(attachment.connection_info["device_path"])
            with device.open("r+b") as disk:
                self.assertEqual(2**30, disk.seek(0, 2))
                disk.seek(4096)
                self.assertEqual(expected, disk.read(5))
                disk.seek(4096)
                disk.write(b"bytes")
            storage.complete_attachment(attachment)
            self.assertEqual("in-use", storage.get_volume(volume.id).status)
            storage.delete_attachment(attachment)
            self.assertFalse(device.exists())
        storage.delete_volume(volume)
        storage.wait_for_delete(volume, interval=0.1, wait=TIMEOUT)
