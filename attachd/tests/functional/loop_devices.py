# SPDX-License-Identifier: Apache-2.0
"""Loop devices over files of a test's own, and processes that use them; gone with the test."""

from pathlib import Path
import shutil
import subprocess
import sys
import unittest

from attachd.tests import machine
from attachd.tests.functional import processes

MIB = 2**20


class Case(unittest.TestCase):
    """A test of a host with devices.

    :ivar folder: of the test, where nothing is mounted when it is over
    """

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        machine.share_mounts(self)
        machine.need_device(self, "/dev/loop-control")
        for tool in ("blkid", "losetup", "mkfs.ext4", "mount", "setpriv", "umount", "wipefs"):
            machine.need_tool(self, tool)
        self.folder = processes.folder(self)

    def device(self, size=16 * MIB, *flags, of=None, content=None):
        """Return a new device.

        :param flags: of losetup
        :param of: the file, which may be a device; None: a new one
        :param content: another file, which the new one is a copy of
        """
        if of is None:
            of = self.folder / f"file{len(list(self.folder.iterdir()))}"
            if content is None:
                with of.open("wb") as file:
                    file.truncate(size)
            else:
                shutil.copyfile(content, of)
        path = self.run_tool("losetup", "--find", "--show", *flags, str(of)).strip()
        self.addCleanup(self.run_tool, "losetup", "--detach", path)
        return path

    def file_of(self, device):
        """Return the file that a device is over."""
        return Path(Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip())

    def place(self, name="there"):
        """Return a folder that is not there yet; what gets mounted at it goes with the test."""
        folder = self.folder / name
        self.addCleanup(subprocess.run, ["umount", "-R", folder], check=False, capture_output=True)
        return str(folder)

    def formatted(self, kind="ext4", size=16 * MIB):
        """Return a new device with a file system."""
        device = self.device(size)
        machine.need_tool(self, f"mkfs.{kind}")
        self.run_tool(f"mkfs.{kind}", "-q", device)
        return device

    def run_tool(self, *words, **settings):
        """Run a tool that has to succeed, and return what it prints."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, **settings)
        self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        return done.stdout

    def process(self, *words, **settings):
        """Start a process that says that it is ready with its first line."""
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **settings)
        self.addCleanup(process.stdout.close)
        self.addCleanup(self.end, process)
        self.assertEqual("ready\n", process.stdout.readline(), words)
        return process

    def python(self, program, *arguments):
        """Start a process of Python; see process()."""
        return self.process(sys.executable, "-W", "ignore", "-c", program, *arguments)

    def end(self, process):
        """Kill a process, if it lives, and wait for its end."""
        process.kill()
        process.wait()
