# SPDX-License-Identifier: Apache-2.0
"""Tests of finding and removing strays, with real devices."""

import json
import os
from pathlib import Path
from unittest import mock
import uuid

from attachd.agent import strays as scan
from attachd.agent.connectors.qemu import loop_devices
from attachd.agent.host import Host, Identity
from attachd.client import strays
from attachd.client.service import RemoteAttachment, Service
from attachd.client.strays import State
from attachd.tests.fixtures import processes
from attachd.tests.fixtures.loop_devices import attach, detach_under
from attachd.tests.fixtures.user_space_devices import OPTIONS, UserSpaceDeviceCase, write_at
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.selection import full_only


@full_only("hosts")
class LoopTest(HostCliCase):
    """The command, with loop devices over files of a backend."""

    def strays(self, *words, code=1):
        """Run the command; returns device, state and error of each stray of this test.

        Other tests may use this machine: nothing is removed without its name.
        """
        line = (processes.script("attachd"), "host-strays", *words, "-f", "json")
        line += ("--hostname", self.name)
        done = processes.run(line, env=self.environment)
        if words:
            self.assertEqual(code, done.returncode, done.stderr)
        rows = [row for row in json.loads(done.stdout) if f"{self.folder}/" in row["Target"]]
        return [(row["Device"], row["State"], row["Error"]) for row in rows]

    def make_stray(self):
        """Return a loop device over the file of an attachment that there is not."""
        file = self.folder / "exports" / f"{uuid.uuid4()}" / f"{uuid.uuid4()}"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(2**20))
        device = attach(file)
        self.addCleanup(detach_under, file.parent)
        return device, file

    def test_loop_device_without_attachment_is_removed_when_unused(self):
        device, file = self.make_stray()
        ((name, state, error),) = self.strays()
        self.assertEqual((device, "unused"), (name, state))
        self.assertIn(f"no volume {file.parent.name}", error)
        with Path(device).open("rb"):
            for words in ((), ("--clean", device)):
                ((_device, state, error),) = self.strays(*words)
                self.assertEqual("in use", state)
                self.assertIn(f"process {os.getpid()}", error)
        write_at(device, 4096, b"late write")
        self.assertEqual([(device, "removed", None)], self.strays("--clean", f"{file}", code=0))
        self.assertEqual(b"late write", file.read_bytes()[4096:4106])
        self.assertEqual([], loop_devices.list_over(file))

    def test_loop_device_over_deleted_file_is_removed(self):
        device, file = self.make_stray()
        file.unlink()
        self.assertEqual([(device, "removed", None)], self.strays("--clean", device, code=0))

    def test_attached_volume_is_no_stray_without_journal(self):
        self.volume()
        device = json.loads(self.local("attach", "data", "-f", "json"))["path"]
        self.assertEqual([], self.strays())
        journal = self.folder / "host" / "attachments"
        journal.rename(self.folder / "lost")
        self.assertEqual([], self.strays())
        words = ("host-strays", "--clean", device, "--hostname", self.name)
        self.assertIn("no stray of this host", self.attachd(*words, code=1))
        self.assertTrue(Path(device).is_block_device())
        (self.folder / "lost").rename(journal)
        self.local("detach", "data")

    def test_silent_service_lets_strays_stay(self):
        device, _file = self.make_stray()
        elsewhere = ("--os-endpoint", "http://127.0.0.1:1/v3")
        ((name, state, error),) = self.strays("--clean", device, "--force", *elsewhere)
        self.assertEqual((device, "unknown"), (name, state))
        self.assertIn("No Block Storage API answers", error)


@full_only("hosts")
class UserSpaceTest(UserSpaceDeviceCase):
    """Devices of QEMU's storage daemon, over iSCSI."""

    def setUp(self):
        super().setUp()
        self.attachments = {}
        service = mock.create_autospec(Service, instance=True, cloud="here")
        service.host_attachments.side_effect = lambda _name: [*self.attachments]
        service.attachment.side_effect = self.attachments.get
        host = Host(Identity("h"), self.folder, "user-space")
        self.finder = strays.StrayFinder(host, service)

    def found(self):
        """Return the strays of this test alone."""
        own = f"{self.folder.resolve()}/"
        return [stray for stray in self.finder.find() if stray.device.target.startswith(own)]

    def test_user_space_device_without_attachment_is_removed_when_unused(self):
        export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        id_ = export.attachment_id
        self.attachments[id_] = RemoteAttachment(id_, self.volume.id, "attached", "rw", "h", {})
        self.assertEqual([], self.found())
        self.attachments.clear()
        (stray,) = self.found()
        self.assertEqual(
            (scan.Kind.USER_SPACE, (device.path,), State.UNUSED),
            (stray.device.kind, stray.device.devices, stray.state),
        )
        with Path(device.path).open("rb"):
            (stray,) = self.finder.clean([device.path])
            self.assertEqual(State.IN_USE, stray.state)
            self.assertIn(f"process {os.getpid()}", stray.error)
        write_at(device.path, 4096, b"late write")
        (stray,) = self.finder.clean([device.path])
        self.assertEqual((State.REMOVED, None), (stray.state, stray.error))
        self.assert_nothing_is_left()
        self.assertEqual(b"late write", self.on_backend(4096, 10))

    def test_dead_daemon_and_its_device_are_removed(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.connector.cut(info)
        (stray,) = self.finder.clean([device.path])
        self.assertEqual((State.REMOVED, None), (stray.state, stray.error))
        self.assert_nothing_is_left()
