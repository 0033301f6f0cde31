# SPDX-License-Identifier: Apache-2.0
"""QEMU's storage daemons over a plain file; functional/test_host_connectors.py: over a network."""

import itertools
import os
from pathlib import Path
import signal
import socket
import threading
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import storage_daemon
from attachd.agent.connectors.qemu.blockdev import VolumePath
from attachd.linux import commands
from attachd.tests.fixtures import requirements
from attachd.tests.unit.agent.connectors.qemu.device_case import SIZE, DeviceCase
from attachd.tests.wait import TIMEOUT, wait_until


class DaemonTest(DeviceCase):
    """Start, use and end of a daemon."""

    def setUp(self):
        super().setUp()
        self.image = VolumePath(
            {"driver": "file", "filename": f"{self.volume}", "read-only": False}, "top-secret"
        )
        self.addCleanup(storage_daemon.remove_files, self.folder, lock=self.lock)
        self.addCleanup(storage_daemon.kill, self.folder)

    def start(self, image):
        storage_daemon.start(self.folder, image, self.lock)

    def test_daemon_exports_volume_until_stopped(self):
        self.assertFalse(storage_daemon.is_ready(self.folder))
        self.start(self.image)
        self.assertTrue(storage_daemon.is_ready(self.folder))
        storage_daemon.wait_until_ready(self.folder)
        file = storage_daemon.image_file(self.folder)
        with file.open("r+b") as shown:
            shown.write(b"data")
        storage_daemon.stop(self.folder)
        self.assertEqual([], storage_daemon.list_running(self.folder))
        self.assertEqual(b"data", self.volume.read_bytes()[:4])
        storage_daemon.remove_files(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))
        storage_daemon.stop(self.folder)

    def test_daemon_keeps_secret_off_disk_and_command_line(self):
        self.start(self.image)
        (found,) = storage_daemon.list_running(self.folder)
        self.assertEqual(storage_daemon.command_line(self.folder, self.image), list(found.line))
        self.assertNotIn("top-secret", f"{found.line}")
        left = {path.name for path in self.folder.iterdir()}
        self.assertEqual({"image", "log", "pid", "qmp"}, left)

    def test_failed_start_raises_with_daemon_log(self):
        image = VolumePath({"driver": "file", "filename": "/nowhere", "read-only": False})
        with self.assertRaisesRegex(exception.HostError, "reached: .*No such file") as caught:
            self.start(image)
        self.assertNotIn("blockdev", f"{caught.exception}")
        self.assertEqual([], storage_daemon.list_running(self.folder))

    def test_daemon_not_ready_in_time_is_stopped(self):
        self.useFixture(fixtures.MonkeyPatch(f"{storage_daemon.__name__}.START_TIMEOUT", 0))
        self.useFixture(
            fixtures.MonkeyPatch(f"{storage_daemon.__name__}.is_ready", lambda _: False)
        )
        with self.assertRaisesRegex(exception.HostError, "no answer in 0 s"):
            self.start(self.image)
        self.assertEqual([], storage_daemon.list_running(self.folder))

    def test_ceph_key_is_marked_as_base64(self):
        ceph = VolumePath({"driver": "rbd", "key-secret": "secret", "read-only": False}, "QVE=")
        self.assertIn('"format": "base64"', f"{storage_daemon.command_line(self.folder, ceph)}")
        self.assertNotIn("base64", f"{storage_daemon.command_line(self.folder, self.image)}")

    def test_remove_files_unmounts_after_kill(self):
        self.start(self.image)
        storage_daemon.kill(self.folder)
        self.assertFalse(storage_daemon.is_ready(self.folder))
        self.assertTrue(storage_daemon.is_fuse_mounted(storage_daemon.image_file(self.folder)))
        storage_daemon.remove_files(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_hung_daemon_ends_only_by_force(self):
        for name in ("END_TIMEOUT", "KILL_TIMEOUT"):
            self.useFixture(
                fixtures.MonkeyPatch(f"attachd.agent.connectors.qemu.storage_daemon.{name}", 0.05)
            )
        self.start(self.image)
        (found,) = storage_daemon.list_running(self.folder)
        os.kill(found.id, signal.SIGSTOP)
        # Until all of its threads have stopped, another signal would be handled first.
        wait_until(lambda: self.states(found.id) == {"T"})
        with self.assertRaisesRegex(exception.HostError, f"process {found.id}.*does not end"):
            storage_daemon.stop(self.folder)
        self.useFixture(fixtures.MonkeyPatch(f"{storage_daemon.__name__}.KILL_TIMEOUT", TIMEOUT))
        storage_daemon.kill(self.folder)
        self.assertEqual([], storage_daemon.list_running(self.folder))

    @staticmethod
    def states(number):
        stats = Path(f"/proc/{number}/task").glob("*/stat")
        return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

    def test_resize_returns_size_of_volume(self):
        self.start(self.image)
        with self.volume.open("r+b") as file:
            file.truncate(2 * SIZE)
        # Unlike an iSCSI LUN, a file would be truncated again to the old size, which QEMU knows.
        self.assertEqual(SIZE, storage_daemon.resize(self.folder))

    def test_end_of_daemons_that_start_again_raises_in_time(self):
        again = mock.Mock(id=1)
        again.end.return_value = True
        with (
            mock.patch.object(storage_daemon, "list_running", return_value=[again]),
            mock.patch.object(storage_daemon.time, "monotonic", side_effect=itertools.count()),
        ):
            for end in (storage_daemon.stop, storage_daemon.kill):
                with self.assertRaisesRegex(exception.HostError, "does not end"):
                    end(self.folder)

    def test_list_running_ignores_other_directories(self):
        self.start(self.image)
        self.assertEqual([], storage_daemon.list_running(self.folder.parent))
        self.assertEqual([], storage_daemon.list_running(self.folder.with_name("devic")))


GREETING = b'{"QMP": {}}\n'
FINE = b'{"return": {}}\n'


class QmpMonitorTest(fixtures.TestWithFixtures):
    """Commands and responses of QMP."""

    def serve(self, *answers):
        """Answer each line that comes."""
        folder = Path(self.useFixture(fixtures.TempDir()).path) / ("long" * 40)
        folder.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        # The path is too long for a socket, but not this one.
        descriptor = os.open(folder, os.O_PATH)
        self.addCleanup(os.close, descriptor)
        listener.bind(f"/proc/self/fd/{descriptor}/qmp")
        listener.listen(1)
        self.asked = []

        def answer():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(GREETING)
                for item in (FINE, *answers):
                    self.asked.append(lines.readline())
                    connection.sendall(item)

        server = threading.Thread(target=answer, daemon=True)
        server.start()
        self.addCleanup(server.join, TIMEOUT)
        return folder / "qmp"

    def test_monitor_execute_skips_events(self):
        path = self.serve(b'{"event": "X"}\n{"return": [1]}\n')
        with storage_daemon.QmpMonitor(path) as monitor:
            self.assertEqual([1], monitor.execute("query", {"a": 1}))
        self.assertIn(b"qmp_capabilities", self.asked[0])
        self.assertEqual(b'{"execute": "query", "arguments": {"a": 1}}\n', self.asked[1])

    def test_monitor_refusal_raises(self):
        path = self.serve(b'{"error": {"desc": "is read-only"}}\n')
        with (
            storage_daemon.QmpMonitor(path) as monitor,
            self.assertRaisesRegex(exception.HostError, "is read-only"),
        ):
            monitor.execute("block_resize", {})

    def test_monitor_end_of_connection_raises(self):
        path = self.serve(b"")
        with storage_daemon.QmpMonitor(path) as monitor, self.assertRaises(exception.HostError):
            monitor.execute("query", {})

    def test_monitor_without_daemon_raises(self):
        for path in ("/nowhere/qmp", "/tmp/nowhere-qmp"):
            with self.assertRaises(exception.HostError), storage_daemon.QmpMonitor(Path(path)):
                pass


class FuseMountTest(fixtures.TestWithFixtures):
    """A file that is mounted over another one, as daemons do."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        self.file, self.other = folder / "a file", folder / "other"
        self.file.write_text("below")
        self.other.write_text("above")
        self.lock = os.open(folder, os.O_RDONLY)
        self.addCleanup(os.close, self.lock)
        self.addCleanup(storage_daemon.unmount_fuse, self.file, lock=self.lock)

    def test_unmount_fuse_removes_all_mounts_in_use(self):
        self.assertFalse(storage_daemon.is_fuse_mounted(self.file))
        for _ in range(2):
            commands.run("mount", "--bind", f"{self.other}", f"{self.file}")
        self.assertTrue(storage_daemon.is_fuse_mounted(self.file))
        with self.file.open() as used:
            storage_daemon.unmount_fuse(self.file, lock=self.lock)
            self.assertEqual("above", used.read())
        self.assertFalse(storage_daemon.is_fuse_mounted(self.file))
        self.assertEqual("below", self.file.read_text())
        storage_daemon.unmount_fuse(self.file, lock=self.lock)

    def test_unmount_fuse_with_remaining_mount_raises(self):
        commands.run("mount", "--bind", f"{self.other}", f"{self.file}")
        failing = exception.HostError(reason="not permitted")

        def fail(*line, **options):
            raise failing

        with (
            fixtures.MonkeyPatch("attachd.linux.commands.run", fail),
            self.assertRaises(exception.HostError),
        ):
            storage_daemon.unmount_fuse(self.file, lock=self.lock)
