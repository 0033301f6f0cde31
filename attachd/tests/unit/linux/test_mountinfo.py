# SPDX-License-Identifier: Apache-2.0
"""Reading of the mount table; functional/test_mounts.py has real mounts."""

import os
from pathlib import Path
import signal
import subprocess
import threading
import time
import unittest

from attachd.linux import mountinfo
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.wait import TIMEOUT, wait_until

_LINE = (
    r"36 35 98:1 /sub /mnt/with\040space\134 rw,noatime master:1 shared:2 - ext3 /dev/a\011b "
    "rw,errors=continue"
)


class TableTest(unittest.TestCase):
    """Lines of mountinfo and their values."""

    def test_mountinfo_line_is_parsed(self):
        mount = mountinfo._read(_LINE)
        self.assertEqual(
            (36, 35, os.makedev(98, 1)), (mount.mount_id, mount.parent_id, mount.device)
        )
        self.assertEqual(("/mnt/with space\\", "/dev/a\tb"), (mount.mountpoint, mount.source))
        self.assertEqual(("ext3", False), (mount.fs_type, mount.read_only))

    def test_mountinfo_line_without_tags_and_source_is_parsed(self):
        mount = mountinfo._read("22 27 0:21 / /proc rw - proc  rw")
        self.assertEqual(("proc", ""), (mount.fs_type, mount.source))

    def test_read_only_mount_or_superblock_is_read_only(self):
        for changed in (
            _LINE.replace(" rw,noat", " ro,noat"),
            _LINE.replace(" rw,err", " ro,err"),
        ):
            self.assertTrue(mountinfo._read(changed).read_only, changed)

    def test_find_at_returns_mount_of_this_process(self):
        self.assertEqual("proc", mountinfo.find_at("/proc").fs_type)
        self.assertIsNone(mountinfo.find_at("/proc/self"))
        self.assertIsNone(mountinfo.find_at("/no/such/folder"))
        self.assertEqual([], mountinfo.list_mounts("no-such-process"))

    def test_mount_is_of_its_device(self):
        mount = mountinfo.find_at("/proc")
        self.assertTrue(mount.is_of_device(mount.device))
        self.assertFalse(mount.is_of_device(os.makedev(0, 999999)))

    def test_list_namespaces_returns_other_namespace(self):
        requirements.require_root(self)
        requirements.require_mount_namespaces(self)
        unshare = requirements.require_tool(self, "unshare")
        script = "mount -t tmpfs ours /mnt && echo && exec sleep 600"
        process = subprocess.Popen([unshare, "-m", "sh", "-c", script], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        found = dict(mountinfo.list_namespaces())
        self.assertIn(("ours", "/mnt"), [(m.source, m.mountpoint) for m in found[process.pid]])
        self.assertNotIn("ours", [mount.source for mount in mountinfo.list_mounts()])
        self.assertNotIn(os.getpid(), found)
        self.assertTrue(Path(f"/proc/{process.pid}").is_dir())


class DeadMountTest(unittest.TestCase):
    """A mount whose file server does not answer."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/fuse")
        tool = requirements.require_tool(self, "qemu-storage-daemon")
        volume = lifetime.temp_dir(self).resolve() / "volume"
        volume.write_bytes(bytes(2**20))
        self.mountpoint = volume.parent / "mount"
        self.mountpoint.touch()
        export = f"type=fuse,id=fuse,node-name=volume,mountpoint={self.mountpoint}"
        blockdev = f"driver=file,node-name=volume,filename={volume}"
        self.server = subprocess.Popen([tool, "--blockdev", blockdev, "--export", export])
        self.addCleanup(self.end)
        wait_until(lambda: mountinfo.find_at(f"{self.mountpoint}") is not None)

    def end(self):
        # Not terminate(): qemu-storage-daemon loses a SIGTERM before its main loop runs.
        self.server.kill()
        self.server.wait()
        subprocess.run(["umount", "--lazy", self.mountpoint], check=False, capture_output=True)

    def test_find_at_does_not_wait_for_file_server(self):
        self.server.send_signal(signal.SIGSTOP)
        time.sleep(1.2)  # the kernel caches attributes for a second
        found = []
        thread = threading.Thread(
            target=lambda: found.append(mountinfo.find_at(f"{self.mountpoint}")), daemon=True
        )
        thread.start()
        thread.join(TIMEOUT)
        self.assertEqual("fuse", found[0].fs_type)
