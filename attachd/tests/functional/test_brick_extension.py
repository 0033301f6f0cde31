# SPDX-License-Identifier: Apache-2.0
"""Tests of the released python-brick-cinderclient-ext against attachd.

No host of this test can log in to a target, so the tests cover what happens before and after.
attachd's own commands remove what the extension leaves behind.
"""

import json
from pathlib import Path
import shutil
import socket
import sys

from attachd.tests.fixtures import processes, requirements, tgtd
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.selection import full_only

_CONFIGURATION = """\
[DEFAULT]
enabled_backends = file, tgt

[file]
file_loop_devices = always
file_devices_dir = {{folder}}/devices

[tgt]
driver = tgt
{options}
"""

# The extension calls sudo for root, too.
_SUDO = '#!/bin/sh\nexec "$@"\n'

# A file that a host with open-iscsi has, and no iscsiadm, for one command only.
_AS_HOST = """\
set -e
mount --bind "$1" /etc
for tool in $(command -v iscsiadm); do mount --bind /dev/null "$tool"; done
shift
exec "$@"
"""

_CONNECTOR = """\
import json
from brick_cinderclient_ext import client
print(json.dumps(client.Client().get_connector()))
"""


@full_only("clients")
class BrickExtensionTest(HostCliCase):
    """The extension is the only one that cinder finds."""

    def setUp(self):
        self.tgtd = tgtd.Tgtd(self)
        self.tgtd.setUp()
        self.addCleanup(self.tgtd.cleanUp)
        options = "\n".join(f"{name} = {value}" for name, value in self.tgtd.options.items())
        self.configuration = _CONFIGURATION.format(options=options)
        super().setUp()
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "sudo").write_text(_SUDO)
        (tools / "sudo").chmod(0o755)
        self.environment["PATH"] = f"{tools}:{self.environment['PATH']}"

    def on(self, backend):
        """Make a volume of a backend; returns its id."""
        specs = {"volume_backend_name": backend}
        kind = self.storage.create_type(name=f"on-{backend}", extra_specs=specs)
        return self.volume(name=f"on-{backend}", volume_type=kind.id)

    def as_host(self, *names):
        """Return what to put before a command for a host with iSCSI names, or without."""
        requirements.require_mount_namespaces(self)
        etc = self.folder / "etc"
        shutil.copytree("/etc", etc, symlinks=True)
        (etc / "iscsi").mkdir(exist_ok=True)
        lines = "".join(f"InitiatorName={name}\n" for name in names)
        (etc / "iscsi" / "initiatorname.iscsi").write_text(lines)
        return (
            requirements.require_tool(self, "unshare"),
            "--mount",
            "sh",
            "-c",
            _AS_HOST,
            "-",
            f"{etc}",
        )

    def only(self, volume):
        """Return the one attachment of a volume."""
        (found,) = self.attachments(volume).values()
        return found

    def free(self, volume):
        """Whether nothing of an attempt is left."""
        left = [target.name for target in self.tgtd.targets()] + self.tgtd.accounts()
        return (self.attachments(volume), self.status(volume), left) == ({}, "available", [])

    def test_brick_get_connector_creates_connector_and_fails_to_print_it(self):
        connector = json.loads(self.run_command(sys.executable, "-c", _CONNECTOR))
        self.assertEqual(socket.gethostname(), connector["host"])
        self.assertIn("print_dict", self.cinder("get-connector", code=1))

    def test_brick_local_attach_of_local_device_is_not_supported_by_brick(self):
        volume = self.on("file")
        self.assertIn("LOCAL not supported", self.cinder("local-attach", volume, code=1))
        left = self.only(volume)
        self.assertEqual("attaching", left["status"])
        device = Path(left["connection_info"]["device_path"])
        self.assertTrue(device.is_block_device())
        self.attachd("local-detach", volume)
        self.assertTrue(self.free(volume))
        self.assertFalse(device.exists())

    def test_brick_local_detach_removes_what_a_failed_attach_left(self):
        volume = self.on("file")
        self.cinder("local-attach", volume, code=1)
        self.assertEqual("", self.cinder("local-detach", volume))
        self.assertTrue(self.free(volume))

    def test_brick_local_attach_without_iscsi_name_fails_with_message(self):
        volume = self.on("tgt")
        command = (*self.as_host(), processes.script("cinder"), "local-attach", volume)
        said = self.run_command(*command, code=1, **self.noauth)
        self.assertIn("needs an iSCSI name", said)
        self.assertTrue(self.free(volume))

    def test_brick_local_attach_without_iscsiadm_fails_after_the_grant(self):
        volume, host = self.on("tgt"), self.as_host(f"iqn.2026-01.org.example:{self.name}")
        command = (*host, processes.script("cinder"), "local-attach", volume)
        locks = f"{self.folder / 'locks'}"
        for more, complaint, clean in (
            # It does not call os_brick.setup(), which sets the lock directory.
            ({}, "lock_path", "attachment-delete"),
            ({"OSLO_LOCK_PATH": locks}, "iscsiadm -m node", "attachment-delete"),
            ({"OSLO_LOCK_PATH": locks}, "iscsiadm -m node", "local-detach"),
        ):
            self.assertIn(complaint, self.run_command(*command, code=1, **self.noauth, **more))
            left = self.only(volume)
            self.assertEqual("attaching", left["status"])
            self.assertEqual("iscsi", left["connection_info"]["driver_volume_type"])
            (target,) = self.tgtd.targets()
            self.assertEqual(left["connection_info"]["target_iqn"], target.name)
            self.attachd(clean, left["id"] if clean == "attachment-delete" else volume)
            self.assertTrue(self.free(volume), complaint)

    def test_brick_local_attach_by_legacy_calls_releases_the_volume(self):
        volume = self.on("file")
        said = self.cinder("local-attach", volume, code=1, OS_VOLUME_API_VERSION="3.0")
        self.assertIn("LOCAL not supported", said)
        self.assertTrue(self.free(volume))
