# SPDX-License-Identifier: Apache-2.0
"""Failures while writers are stopped; functional/test_device_writers.py has real devices."""

import os
from pathlib import Path
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.mount import device_writers, open_handles
from attachd.linux import block_device, commands, device_nodes
from attachd.linux.device_nodes import DeviceNode

DEVICE = "/dev/nvme9n1"
TOP = "/dev/dm-9"
NUMBER = os.makedev(8, 1)


class StopTest(fixtures.TestWithFixtures):
    """The steps for a device with another on top of it, of which one may fail."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.writers = device_writers.DeviceWriters(self.folder)
        self.patch(os, "open", lambda *_: os.dup(0))
        self.node = DeviceNode(DEVICE, NUMBER, None)
        self.nodes = [self.node, DeviceNode(TOP, os.makedev(253, 9), None)]
        self.patch(device_nodes, "stat_device", lambda _: self.node)
        self.patch(DeviceNode, "with_devices_on_top", lambda _: self.nodes)
        self.cut_off = self.patch(DeviceNode, "is_cut_off")
        self.cut_off.return_value = False
        self.make_read_only = self.patch(block_device, "make_read_only")
        self.uses = self.patch(open_handles, "list_uses")
        self.uses.return_value = []
        self.claims = self.patch(open_handles, "list_exclusive_users")
        self.claims.return_value = []
        self.mappings = self.patch(open_handles, "list_shared_mappings")
        self.mappings.return_value = []
        self.mounts = self.patch(open_handles, "list_mount_paths")
        self.mounts.return_value = []
        self.patch(open_handles, "list_swaps_on", lambda _: [])
        self.users = self.patch(open_handles, "find_users")
        self.written = []
        self.shut_down = {}
        self.patch(commands, "execute", self.execute)

    def stop(self):
        self.writers.stop(DEVICE, lambda: True)

    def patch(self, place, name, *new):
        patch = fixtures.MockPatchObject(place, name, *new)
        return self.useFixture(patch).mock

    def execute(self, line, timeout, *, progress=None):
        if line[0] == "sync":
            self.written.append((line[1], progress(), progress()))
            return commands.CommandResult(1, "", "the backend refuses")
        failure = self.shut_down[line[-2]]
        return commands.CommandResult(int(bool(failure)), "", failure)

    def test_cache_is_written_from_the_top_and_waited_for(self):
        with self.assertLogs(device_writers.LOG, "WARNING") as logged:
            self.stop()
        self.assertEqual([(TOP, 0, 1), (DEVICE, 0, 1)], self.written)
        self.assertIn(f"cached of {DEVICE} could not be written for 1 minutes", logged.output[1])

    def test_steps_after_a_failure_are_taken(self):
        self.make_read_only.side_effect = exception.HostError(reason="The device refuses.")
        self.mounts.side_effect = lambda number: ["/a", "/b"] if number == NUMBER else []
        self.shut_down = {"/a": "/a is covered", "/b": "/b: denied"}
        with self.assertRaisesRegex(
            exception.HostError,
            f"(The device refuses. ){{2}}A file system on {DEVICE} cannot be shut down: "
            "/a is covered; /b: denied",
        ):
            self.stop()
        self.assertEqual([TOP, DEVICE], [path for path, *_ in self.written])

    def test_one_path_to_a_file_system_is_enough(self):
        self.mounts.side_effect = lambda number: ["/a", "/b"] if number == NUMBER else []
        self.shut_down = {"/a": "/a is covered", "/b": ""}
        self.stop()

    def test_complete_stop_is_not_repeated(self):
        self.patch(block_device, "is_read_only", lambda _: True)
        self.patch(block_device, "exists", lambda _: True)
        sequences = self.useFixture(fixtures.MockPatchObject(block_device, "sequence_number")).mock
        counts = []
        for sequence in ("1", "1", "2"):
            sequences.return_value = sequence
            self.stop()
            counts.append(self.mappings.call_count)
        self.nodes.append(DeviceNode("/dev/dm-10", os.makedev(253, 10), None))
        self.stop()
        self.assertEqual([1, 1, 2, 3], [*counts, self.mappings.call_count])

    def test_process_that_hangs_is_an_error(self):
        use = mock.Mock(process=f"{os.getpid()}", **{"describe.return_value": "process 9 (dd)"})
        self.mappings.return_value = [use]
        self.patch(device_writers, "_TIMEOUT", 0.1)
        kill = self.patch(os, "kill")
        kill.side_effect = ProcessLookupError
        with self.assertRaisesRegex(exception.HostError, "has not ended: process 9"):
            self.stop()
        kill.assert_called_with(os.getpid(), 9)

    def test_mount_that_no_process_sees_is_an_error(self):
        self.claims.return_value = ["the kernel"]
        self.stop()  # It is used by the device on top.
        self.nodes.pop()
        with self.assertRaisesRegex(exception.HostError, f"{DEVICE} cannot be .*: the kernel"):
            self.stop()

    def test_unused_device_without_controller_is_not_opened(self):
        self.cut_off.return_value = True
        self.users.return_value = ""
        self.stop()
        self.make_read_only.assert_not_called()
        self.users.return_value = "process 9 (dd)"
        self.stop()
        self.assertEqual([mock.call(DEVICE), mock.call(TOP)], self.make_read_only.mock_calls)


class StackTest(fixtures.TestWithFixtures):
    """The devices on top of a device, as in sysfs."""

    def test_devices_on_top_are_found_at_any_height(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        for below, name, numbers in (("8:16", "dm-3", "253:3"), ("253:3", "dm-4", "253:4")):
            holder = folder / below / "holders" / name
            holder.mkdir(parents=True)
            (holder / "dev").write_text(f"{numbers}\n")
        self.useFixture(fixtures.MockPatchObject(device_nodes, "_NUMBERS", folder))
        nodes = DeviceNode("/dev/sdb", os.makedev(8, 16), None).with_devices_on_top()
        self.assertEqual(["/dev/sdb", "/dev/dm-3", "/dev/dm-4"], [node.path for node in nodes])
