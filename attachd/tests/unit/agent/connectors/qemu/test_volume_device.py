# SPDX-License-Identifier: Apache-2.0
"""A volume device: a daemon and a loop device; here over plain files."""

from pathlib import Path

from attachd import exception
from attachd.agent.connectors.qemu import loop_devices, storage_daemon, volume_device
from attachd.agent.connectors.qemu.blockdev import VolumePath
from attachd.tests.fixtures import requirements
from attachd.tests.unit.agent.connectors.qemu.device_case import DeviceCase


def image(path, *, reading=False):
    return VolumePath({"driver": "file", "filename": f"{path}", "read-only": reading})


class AssemblyTest(DeviceCase):
    """Operations with complete and incomplete devices."""

    def setUp(self):
        super().setUp()
        requirements.require_device(self, "/dev/loop-control")
        self.paths = [image(self.volume)]
        self.addCleanup(volume_device.discard, self.folder, self.lock)

    def complete(self, paths=None):
        return volume_device.resume(self.folder, paths or self.paths)

    def test_device_lifecycle_leaves_data_and_empty_directory(self):
        self.assertIsNone(self.complete())
        self.assertIsNone(volume_device.find(self.folder, self.paths))
        device = volume_device.create(self.folder, self.paths, self.lock)
        self.assertEqual(device, self.complete())
        self.assertEqual(device.path, volume_device.find(self.folder, self.paths).path)
        Path(device.path).write_bytes(b"x" * 512)
        volume_device.delete(self.folder, self.lock)
        self.assertEqual(b"x" * 512, self.volume.read_bytes()[:512])
        self.assertEqual([], list(self.folder.iterdir()))
        volume_device.delete(self.folder, self.lock)

    def test_device_of_killed_daemon_in_use_stays(self):
        device = volume_device.create(self.folder, self.paths, self.lock)
        volume_device.check_unused(self.folder)
        with Path(device.path).open("r+b", buffering=0) as file:
            storage_daemon.kill(self.folder)
            file.write(b"x" * 4096)
            with self.assertRaisesRegex(exception.HostError, "lost its volume.*process .*--force"):
                volume_device.check_unused(self.folder)
        # The kernel reports what is lost to the first one only.
        for _ in range(2):
            with self.assertRaisesRegex(exception.HostError, "Not all that was written"):
                volume_device.delete(self.folder, self.lock)
        volume_device.delete(self.folder, self.lock, force=True)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_resume_adds_loop_device_to_running_daemon(self):
        storage_daemon.start(self.folder, self.paths[0], self.lock)
        self.assertIsNone(volume_device.find(self.folder, self.paths))
        device = self.complete()
        self.assertEqual(device.path, volume_device.find(self.folder, self.paths).path)

    def test_resume_refuses_other_mode_or_volume(self):
        volume_device.create(self.folder, self.paths, self.lock)
        other = self.volume.with_name("other")
        for wrong in (image(self.volume, reading=True), image(other)):
            self.assertIsNone(self.complete([wrong]))
            self.assertIsNone(volume_device.find(self.folder, [wrong]))
        self.assertIsNotNone(self.complete([image(other), *self.paths]))

    def test_resume_refuses_two_loop_devices(self):
        volume_device.create(self.folder, self.paths, self.lock)
        loop_devices.attach(storage_daemon.image_file(self.folder), writable=True)
        self.assertIsNone(self.complete())
        volume_device.delete(self.folder, self.lock)

    def test_create_uses_first_working_path(self):
        paths = [image("/nowhere"), *self.paths]
        device = volume_device.create(self.folder, paths, self.lock)
        self.assertEqual(device, self.complete(paths))

    def test_create_without_working_path_leaves_nothing(self):
        with self.assertRaisesRegex(exception.HostError, "No such file.*repeat the command"):
            volume_device.create(self.folder, [image("/nowhere")] * 2, self.lock)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_extend_of_plain_file_raises(self):
        with self.assertRaisesRegex(exception.HostError, "not connected"):
            volume_device.extend(self.folder, self.paths)
        volume_device.create(self.folder, self.paths, self.lock)
        with self.assertRaisesRegex(exception.GrowthNeedsDetach, "Detach the volume"):
            volume_device.extend(self.folder, self.paths)
