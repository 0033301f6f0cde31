# SPDX-License-Identifier: Apache-2.0
"""Tests of the block devices that a host's connectors make of a volume on a real tgtd."""

import os
from pathlib import Path
import secrets
import signal
import subprocess

import fixtures

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.connectors.qemu import state_dir, storage_daemon
from attachd.agent.host import make_connector
from attachd.drivers import base, file
from attachd.linux import block_device
from attachd.tests.fixtures import processes, requirements
from attachd.tests.fixtures.user_space_devices import (
    GIB,
    MIB,
    OPTIONS,
    UserSpaceDeviceCase,
    assert_confined,
    list_orphans,
    processes_of,
    read_at,
    write_at,
)
from attachd.tests.wait import TIMEOUT, wait_until


def is_writing(path):
    """Return whether the disk of a device has yet to complete a write."""
    return (
        Path(f"/sys/block/{Path(path).resolve().name}/inflight").read_text().split() != ["0"] * 2
    )


class LifeTest(UserSpaceDeviceCase):
    """Attach, use, detach, attach elsewhere."""

    def test_connector_files_written_by_one_host_are_read_by_the_next(self):
        data = secrets.token_bytes(5 * MIB)
        first, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.run_tool("mkfs.ext4", "-q", device.path)
        with self.mounted(device.path) as folder:
            (folder / "data").write_bytes(data)
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()
        self.driver.revoke(self.volume, first, [])

        other = self.new_connector(
            self.folder / "other", "iqn.2026-01.internal.attachd.test:other"
        )
        _second, info = self.export(other)
        device = other.connect(info, OPTIONS)
        self.run_tool("e2fsck", "-f", "-n", device.path)
        with self.mounted(device.path, "-o", "ro") as folder:
            self.assertEqual(data, (folder / "data").read_bytes())
        other.disconnect(info, OPTIONS, None)
        self.assertEqual([], list_orphans(self.folder / "other"))
        self.assert_nothing_is_left()

    def test_connector_daemon_has_no_rights_and_is_found_without_its_command_line(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        assert_confined(self, self.folder)
        directory = state_dir.path_for(self.folder, info)
        (daemon,) = storage_daemon.list_running(directory)
        # A process can write another command line into its memory.
        self.overwrite_command_line(daemon.id)
        (found,) = storage_daemon.list_running(directory)
        self.assertEqual((daemon.id, "x"), (found.id, found.line[0]))
        self.assertFalse(self.connector.is_present(info, device))
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()

    @staticmethod
    def overwrite_command_line(process):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        start, end = map(int, stat[48 - 3 : 50 - 3])
        with Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(b"x".ljust(end - start, b"\0"))

    def test_connector_large_writes_are_read_back(self):
        # With direct I/O the loop driver garbles it.
        data = secrets.token_bytes(32 * MIB)
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        write_at(device.path, 7 * MIB + 512, data)
        self.connector.disconnect(info, OPTIONS, device)
        self.assertEqual(data, self.on_backend(7 * MIB + 512, len(data)))

    def test_connector_calls_can_be_repeated(self):
        _export, info = self.export()
        self.connector.disconnect(info, OPTIONS, None)
        device = self.connector.connect(info, OPTIONS)
        self.assertEqual(device, self.connector.connect(info, OPTIONS))
        self.assertEqual(device, self.new_connector(self.folder).connect(info, OPTIONS))
        self.assertTrue(self.connector.is_present(info, device))
        self.assertEqual(1, len(self.tgtd.sessions()))
        self.connector.disconnect(info, OPTIONS, device)
        self.assertFalse(self.connector.is_present(info, device))
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()

    def test_connector_two_attachments_are_two_devices(self):
        _first, one = self.export()
        second, _info = self.export()
        two = dict(one, attachment_id=second.attachment_id)
        devices = [self.connector.connect(item, OPTIONS) for item in (one, two)]
        self.assertNotEqual(devices[0].path, devices[1].path)
        self.connector.disconnect(one, OPTIONS, devices[0])
        self.assertTrue(self.connector.is_present(two, devices[1]))
        self.connector.disconnect(two, OPTIONS, devices[1])
        self.assert_nothing_is_left()

    def test_connector_extend_resizes_the_device(self):
        export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.assertEqual(GIB, self.connector.extend(info, OPTIONS, device))
        self.driver.extend(self.volume, 2, [export])
        for _ in range(2):
            self.assertEqual(2 * GIB, self.connector.extend(info, OPTIONS, device))
        write_at(device.path, 2 * GIB - 512, b"9" * 512)
        self.connector.disconnect(info, OPTIONS, device)
        self.assertEqual(b"9" * 512, self.on_backend(2 * GIB - 512, 512))

    def test_connector_read_only_device_refuses_writes(self):
        _export, info = self.export(mode="ro")
        device = self.connector.connect(info, OPTIONS)
        self.assertEqual(device, self.connector.connect(info, OPTIONS))
        self.assertEqual(bytes(512), read_at(device.path, 0, 512))
        self.assertRaises(OSError, write_at, device.path, 0, b"x" * 512)
        line = ["dd", "if=/dev/zero", f"of={device.path}", "count=1", "conv=notrunc"]
        self.assertNotEqual(0, subprocess.run(line, capture_output=True, check=False).returncode)
        self.assertRaises(exception.HostError, self.connector.extend, info, OPTIONS, device)

    def test_connector_device_of_other_mode_is_recreated(self):
        export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.driver.revoke(self.volume, export, [])
        again = base.Export(export.attachment_id, export.connector, "ro", export.secret)
        result = self.driver.grant(self.volume, again)
        reading = info | result["data"]
        self.assertFalse(self.connector.is_present(reading, device))
        device = self.connector.connect(reading, OPTIONS)
        self.assertRaises(OSError, write_at, device.path, 0, b"x" * 512)

    def test_connector_directory_may_have_any_name(self):
        folder = self.folder / ("a, folder with=spaces " * 6)
        folder.mkdir()
        (self.folder / "link").symlink_to(folder)
        connector = self.new_connector(self.folder / "link")
        _export, info = self.export(connector)
        device = connector.connect(info, OPTIONS)
        self.assertEqual(device, self.new_connector(folder).connect(info, OPTIONS))
        self.assertEqual(GIB, connector.extend(info, OPTIONS, device))
        connector.disconnect(info, OPTIONS, device)
        self.assertEqual([], list_orphans(folder))

    def run_tool(self, tool, *arguments):
        line = [requirements.require_tool(self, tool), *arguments]
        processes.check_output(line)

    def mounted(self, device, *options):
        test = self

        class Mounted:
            def __enter__(self):
                self.folder = Path(test.useFixture(fixtures.TempDir()).path)
                test.run_tool("mount", *options, device, f"{self.folder}")
                test.addCleanup(self.unmount)
                return self.folder

            def unmount(self):
                subprocess.run(["umount", self.folder], capture_output=True, check=False)

            def __exit__(self, *error):
                test.run_tool("umount", f"{self.folder}")

        return Mounted()


class RefusedTest(UserSpaceDeviceCase):
    """Tests of refused connects."""

    def test_connect_with_other_initiator_is_refused_and_leaves_nothing(self):
        _export, info = self.export()
        other = self.new_connector(self.folder, "iqn.2026-01.internal.attachd.test:other")
        error = self.assertRaises(exception.HostError, other.connect, info, OPTIONS)
        self.assertIn("not found", f"{error}")
        self.assert_nothing_is_left()

    def test_connect_with_wrong_secret_is_refused_and_not_logged(self):
        _export, info = self.export()
        wrong = info | {"auth_password": "not-this-secret-but"}
        error = self.assertRaises(exception.HostError, self.connector.connect, wrong, OPTIONS)
        self.assertIn("uthentication", f"{error}")
        self.assertNotIn("not-this-secret-but", f"{error}")
        self.assert_nothing_is_left()

    def test_connect_with_broken_portal_uses_the_next(self):
        _export, info = self.export()
        several = info | {
            "target_portals": ["127.0.0.1:1", info["target_portal"]],
            "target_iqns": [info["target_iqn"]] * 2,
            "target_luns": [info["target_lun"]] * 2,
        }
        device = self.connector.connect(several, OPTIONS)
        self.assertEqual(device, self.connector.connect(several, OPTIONS))
        self.connector.disconnect(several, OPTIONS, device)
        self.assert_nothing_is_left()

    def test_connect_with_enforced_multipath_is_refused(self):
        _export, info = self.export()
        options = Options(multipath=True, enforce_multipath=True)
        for call in (
            self.connector.connect,
            lambda *_: self.connector.get_connector_properties("host", options),
        ):
            error = self.assertRaises(exception.HostError, call, info, options)
            self.assertIn("multipath", f"{error}")

    def test_connect_leaves_no_secret_in_command_lines_or_files(self):
        log = self.useFixture(fixtures.FakeLogger(level=0))
        seen = []
        export, info = self.export()
        self.useFixture(fixtures.MonkeyPatch("subprocess.Popen.__init__", _spy(seen)))
        device = self.connector.connect(info, OPTIONS)
        lines = processes_of(self.folder)
        self.assertEqual(1, len(lines))
        kept = [path for path in self.folder.rglob("*") if path.is_file()]
        texts = [path.read_text() for path in kept if path.name != "image"]
        self.connector.disconnect(info, OPTIONS, device)
        self.assertTrue(any("losetup" in item for item in seen))
        for item in [*seen, *lines, *texts, log.output]:
            self.assertNotIn(export.secret, item)


class TroubleTest(UserSpaceDeviceCase):
    """What dies, or hangs, or is held."""

    def test_connect_after_storage_daemon_died_recreates_the_device(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        write_at(device.path, 0, b"kept" * 1024)
        os.sync()
        self.kill_daemon(info)
        self.assertFalse(self.connector.is_present(info, device))
        device = self.connector.connect(info, OPTIONS)
        self.assertEqual(b"kept" * 1024, read_at(device.path, 0, 4096))
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()

    def test_disconnect_after_storage_daemon_died_succeeds(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.kill_daemon(info)
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()

    def test_unwritten_data_of_a_dead_storage_daemon_is_reported(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.kill_daemon(info)
        with Path(device.path).open("r+b", buffering=0) as lost:
            lost.write(b"lost" * 1024)
            # While it is open the error has not been reported yet.
            error = self.assertRaises(
                exception.HostError, self.connector.disconnect, info, OPTIONS, device
            )
        self.assertIn("Not all that was written", f"{error}")
        self.connector.disconnect(info, OPTIONS, device, force=True)
        self.assert_nothing_is_left()

    def test_disconnect_of_open_device_is_refused(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        hasty = fixtures.MonkeyPatch(
            "attachd.agent.connectors.qemu.loop_devices.DETACH_TIMEOUT", 0.1
        )
        with hasty, Path(device.path).open("rb"):
            error = self.assertRaises(
                exception.HostError, self.connector.disconnect, info, OPTIONS, device
            )
            self.assertIn(device.path, f"{error}")
            self.assertEqual(1, len(self.tgtd.sessions()))
            again = self.assertRaises(exception.HostError, self.connector.connect, info, OPTIONS)
            self.assertIn("was detached while", f"{again}")
        self.connector.disconnect(info, OPTIONS, device)
        self.assert_nothing_is_left()

    def test_disconnect_from_hanging_backend_requires_force(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.write_late(device)
        for name in (
            "linux.commands.DEFAULT_TIMEOUT",
            "agent.connectors.qemu.volume_device.FORCED_FLUSH_TIMEOUT",
        ):
            self.useFixture(fixtures.MonkeyPatch(f"attachd.{name}", 0.3))
        error = self.assertRaises(
            exception.HostError, self.connector.disconnect, info, OPTIONS, device
        )
        self.assertIn("Not all that was written", f"{error}")
        self.assertTrue(self.connector.is_present(info, device))
        self.connector.disconnect(info, OPTIONS, device, force=True)
        self.assertEqual([], list_orphans(self.folder))
        self.tgtd.go_on()
        self.assert_nothing_is_left()

    def test_forced_disconnect_writes_all_to_slow_backend(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        data = secrets.token_bytes(32 * MIB)
        count_writes, seen = block_device.count_writes, []

        def write_a_little(path):
            """Let the backend write each time the flush looks for progress, and later the rest."""
            before = count_writes(path)
            self.tgtd.go_on()
            if len(seen) < 4:
                wait_until(lambda: count_writes(path) != before or not is_writing(path))
                self.tgtd.pause()
            seen.append(count_writes(path))
            return len(seen)

        patched = "attachd.linux.block_device.count_writes"
        self.useFixture(fixtures.MonkeyPatch(patched, write_a_little))
        self.useFixture(
            fixtures.MonkeyPatch(
                "attachd.agent.connectors.qemu.volume_device.FORCED_FLUSH_TIMEOUT", 0.3
            )
        )
        self.write_late(device, data)
        self.connector.disconnect(info, OPTIONS, device, force=True)
        self.assertLess(1, len(seen))
        self.assertNotEqual(seen[0], seen[-1])
        self.assertTrue(data == self.on_backend(0, len(data)))
        self.assert_nothing_is_left()

    def test_pending_writes_reach_a_backend_that_returns(self):
        _export, info = self.export()
        device = self.connector.connect(info, OPTIONS)
        self.write_late(device)
        with fixtures.MonkeyPatch("attachd.linux.commands.DEFAULT_TIMEOUT", 0.3):
            self.assertRaises(
                exception.HostError, self.connector.disconnect, info, OPTIONS, device
            )
        self.tgtd.go_on()
        self.connector.disconnect(info, OPTIONS, device)
        self.assertEqual(b"late" * 1024, self.on_backend(0, 4096))
        self.assert_nothing_is_left()

    def write_late(self, device, data=b"late" * 1024):
        """Let another process write what the backend does not take; it hangs until that ends."""
        line = ["dd", f"of={device.path}", "bs=64K", "conv=notrunc,fsync"]
        with Path(device.path).open("rb", buffering=0) as known:
            known.read(4096)
            self.tgtd.pause()
            late = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.addCleanup(late.wait, TIMEOUT)
            late.stdin.write(data)
            late.stdin.close()
            # What it has written is in the kernel's memory, from where we have read before.
            wait_until(
                lambda: late.poll() is not None or os.pread(known.fileno(), 4, 0) == data[:4]
            )
            self.assertIsNone(late.poll())

    def kill_daemon(self, info):
        (daemon,) = storage_daemon.list_running(state_dir.path_for(self.folder, info))
        self.assertTrue(daemon.end(signal.SIGKILL, 60))


class LocalTest(UserSpaceDeviceCase):
    """Devices of the file driver."""

    def new_driver(self):
        options = {
            "file_folder": f"{self.folder / 'files'}",
            "file_loop_devices": "always",
            "file_devices_dir": f"{self.folder / 'names'}",
        }
        return self.driver_of(file.FileDriver, options)

    def test_connect_to_local_device_returns_it(self):
        for name in ("user-space", "kernel"):
            connector = make_connector(name, self.folder)
            export, info = self.export()
            device = connector.connect(info, OPTIONS)
            self.assertTrue(connector.is_present(info, device))
            write_at(device.path, 0, name.encode())
            connector.disconnect(info, OPTIONS, device)
            self.assertEqual(name.encode(), read_at(device.path, 0, len(name)))
            self.driver.extend(self.volume, 2, [export])
            self.assertEqual(2 * GIB, connector.extend(info, OPTIONS, device))
            self.driver.revoke(self.volume, export, [])
            self.assertFalse(connector.is_present(info, device))
            connector.disconnect(info, OPTIONS, device)
            error = self.assertRaises(exception.HostError, connector.connect, info, OPTIONS)
            self.assertIn("does not exist on this host", f"{error}")

    def test_connect_to_local_device_read_only_refuses_writes(self):
        _export, info = self.export(mode="ro")
        for name in ("user-space", "kernel"):
            device = make_connector(name, self.folder).connect(info, OPTIONS)
            self.assertRaises(OSError, write_at, device.path, 0, b"x" * 512)
        writable = self.export()[1] | {"access_mode": "ro"}
        error = self.assertRaises(exception.HostError, self.connector.connect, writable, OPTIONS)
        self.assertIn("accepts writes", f"{error}")


def _spy(seen):
    real = subprocess.Popen.__init__

    def spying(self, line, *arguments, **options):
        seen.append(" ".join(map(str, line)))
        real(self, line, *arguments, **options)

    return spying
