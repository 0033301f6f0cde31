# SPDX-License-Identifier: Apache-2.0
"""Devices and file systems that grow with their volumes, on a host without an agent."""

import json
import os
from pathlib import Path
import re
import signal
import subprocess

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal
from attachd.agent.mount import growth, mounts
from attachd.agent.mount.mount_rules import MountRules
from attachd.linux import block_device, loops
from attachd.tests.fixtures import processes, requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

GIB = 2**30
SMALL, LARGE = 320 * MIB, 1024 * MIB
RULES = MountRules(("btrfs",))
_CAP_SYS_RESOURCE = 24


def may_grow_ext4():
    """Return whether this process has the right that the kernel wants for ext4."""
    (text,) = re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    return bool(int(text, 16) >> _CAP_SYS_RESOURCE & 1)


@full_only("hosts")
class FilesystemGrowthTest(LoopDeviceCase):
    """Real file systems on devices that grow."""

    def setUp(self):
        super().setUp()
        self.journal = Journal(self.folder / "host")

    def grown(self, kind, *, mode="rw", name="there"):
        """Return the entry of a mounted volume whose device has grown."""
        requirements.require_tool(self, f"mkfs.{kind}")
        device, folder = self.formatted(kind, SMALL), self.place(name)
        mounts.mount(device, folder, mode=mode, rules=RULES)
        os.truncate(self.file_of(device), LARGE)
        loops.set_capacity(device)
        return self.journal.write(Entry("v", device=Device(device, {}), mountpoint=folder))

    def free(self, entry):
        found = os.statvfs(entry.mountpoint)
        return found.f_blocks * found.f_frsize

    def update(self, entry, types=growth.GROWABLE, **more):
        return growth.update(self.journal, entry, types=types, **more)

    def test_mounted_file_system_grows_to_the_size_of_its_device(self):
        for kind in ("ext4", "xfs", "btrfs"):
            with self.subTest(kind):
                entry = self.grown(kind, name=kind)
                (Path(entry.mountpoint) / "file").write_text("data")
                self.assertFalse(growth.is_read(entry))
                entry = self.update(entry, ())
                self.assertTrue(growth.is_read(entry))
                self.assertEqual((kind, SMALL, LARGE), self.sizes(entry))
                self.assertEqual(f"{kind} has 0.31 of 1 GiB", entry.filesystem.describe())
                self.assertLessEqual(self.free(entry), SMALL)
                entry = self.update(entry)
                if kind == "ext4" and not may_grow_ext4():
                    self.assertIn("CAP_SYS_RESOURCE", entry.filesystem.error)
                    continue
                self.assertEqual((kind, LARGE, LARGE), self.sizes(entry))
                self.assertIsNone(entry.filesystem.describe())
                self.assertGreater(self.free(entry), 0.8 * LARGE)
                self.assertEqual(entry, self.update(entry))
                self.assertEqual(entry, self.journal.get(entry.id))
                mounts.unmount(entry.mountpoint)
                self.assertTrue(growth.is_read(entry))
                self.assertEqual((kind, LARGE), growth_of(entry))
                mounts.mount(entry.device.path, entry.mountpoint, mode="rw", rules=RULES)
                self.assertEqual("data", (Path(entry.mountpoint) / "file").read_text())

    def sizes(self, entry):
        state = entry.filesystem
        return state.type, state.size, state.device_size

    def test_file_system_that_must_not_grow_says_why(self):
        def refuse():
            raise exception.HostError(reason="host b has it.")

        entry = self.update(self.grown("xfs"), check_growable=refuse)
        self.assertEqual("xfs has 0.31 of 1 GiB: host b has it.", entry.filesystem.describe())
        mounts.unmount(entry.mountpoint)
        entry = self.update(self.journal.write(entry, filesystem=None))
        self.assertIn("only while it is mounted", entry.filesystem.error)
        mounts.mount(entry.device.path, entry.mountpoint, mode="rw")
        # The type is not one that may grow.
        entry = self.update(entry, ("ext4",))
        self.assertIsNone(entry.filesystem.error)
        self.assertEqual(SMALL, entry.filesystem.size)

    def test_read_only_mounts_and_devices_do_not_grow(self):
        entry = self.grown("xfs")
        device, folder = entry.device.path, entry.mountpoint
        self.run_tool("mount", "-o", "remount,ro", folder)
        self.assertIn("read-only on this host", self.update(entry).filesystem.error)
        mounts.unmount(folder)
        self.run_tool("blockdev", "--setro", device)
        mounts.mount(device, folder, mode="ro")
        self.assertIn("read-only on this host", self.update(entry).filesystem.error)
        self.assertEqual(SMALL, growth.read(device).size)

    def test_nothing_is_known_of_other_contents(self):
        device = self.device()
        entry = self.journal.write(Entry("v", device=Device(device, {})))
        state = self.update(entry).filesystem
        self.assertEqual(("", 0, 16 * MIB, None), (state.type, state.size, state.device_size,
                                                  state.describe()))  # fmt: skip
        self.run_tool(requirements.require_tool(self, "mkfs.minix"), device)
        self.assertEqual("", self.update(entry).filesystem.type)

    def test_plain_file_grows_with_its_loop_device(self):
        file, folder = self.folder / "plain", self.place()
        with file.open("wb") as made:
            made.truncate(SMALL)
        self.run_tool("mkfs.xfs", "-q", f"{file}")
        mounts.mount(f"{file}", folder, mode="rw")
        os.truncate(file, LARGE)
        entry = self.journal.write(Entry("v", device=Device(f"{file}", {}), mountpoint=folder))
        self.assertEqual(("xfs", LARGE, LARGE), self.sizes(self.update(entry)))

    def test_process_killed_between_device_and_file_system_is_repeated(self):
        entry = self.grown("xfs")
        text = (
            "import os; from pathlib import Path; from attachd.agent.mount import growth;"
            "from attachd.agent.journal import Journal; import signal;"
            f"journal = Journal(Path({f'{self.journal.state_path}'!r}));"
            "kill = lambda: os.kill(os.getpid(), signal.SIGKILL);"
            f"entry = journal.get({entry.id!r});"
            "{};"
            "growth.update(journal, entry, types=growth.GROWABLE, check_growable={})"
        )
        before = text.format("pass", "kill")
        after = text.format("journal.write = lambda *_a, **_b: kill()", "lambda: None")
        for program, size in ((before, SMALL), (after, LARGE)):
            ended = subprocess.run([os.sys.executable, "-c", program], check=False)
            self.assertEqual(-signal.SIGKILL, ended.returncode)
            self.assertFalse(growth.is_read(self.journal.get(entry.id)))
            self.assertEqual(size, growth.read(entry.device.path).size)
        entry = self.update(self.journal.get(entry.id))
        self.assertEqual(("xfs", LARGE, LARGE), self.sizes(entry))


def growth_of(entry):
    """Return the type and size that a superblock has."""
    state = growth.read(entry.device.path)
    return state.type, state.size


@full_only("hosts")
class LocalGrowTest(HostCliCase):
    """The commands of a host, with a volume that is a loop device."""

    def setUp(self):
        super().setUp()
        requirements.require_tool(self, "mkfs.xfs")
        self.mountpoint = self.folder / "mnt"

    def attach(self, *words, name="data"):
        return json.loads(
            self.local(
                *("attach", name, "--mountpoint", f"{self.mountpoint}", *words, "-f", "json")
            )
        )

    def extend(self, volume, size=2):
        self.storage.post(
            f"/volumes/{volume}/action", json={"os-extend": {"new_size": size}},
            microversion="3.42",
        )  # fmt: skip
        wait_until(lambda: self.storage.get_volume(volume).size == size)

    def listed(self):
        (row,) = self.rows(self.local("list", "--long", "-f", "json"))
        return row

    def grow(self, *words, code=0):
        said = self.local("grow", "data", *words, "-f", "json", code=code)
        return said if code else json.loads(said)

    def test_file_system_of_attachd_grows_on_request(self):
        volume = self.volume()
        shown = self.attach("--mkfs", "xfs", "--assume-empty")
        self.assertEqual(GIB, shown["size_bytes"])
        self.assertEqual(("xfs", GIB), (shown["filesystem"], shown["filesystem_bytes"]))
        self.assertIsNone(self.listed()["Growth"])
        self.extend(volume)
        shown = self.grow()
        self.assertEqual((2 * GIB, 2 * GIB), (shown["size_bytes"], shown["filesystem_bytes"]))
        row = self.listed()
        self.assertEqual((2 * GIB, "xfs", 2 * GIB, None),
                         (row["Size"], row["File System"], row["File System Size"],
                          row["Growth"]))  # fmt: skip
        self.assertEqual(shown, self.grow("--grow-fs"))

    def test_file_system_that_is_smaller_is_reported_at_attach_and_grows_on_request(self):
        volume = self.volume()
        self.attach("--mkfs", "xfs", "--assume-empty")
        self.local("detach", "data")
        self.extend(volume)
        self.attach()
        advice = f"xfs has 1 of 2 GiB. Let it grow: attachd local-grow --grow-fs {volume}"
        self.assertEqual(advice, self.listed()["Growth"])
        self.assertEqual(GIB, self.grow()["filesystem_bytes"])
        self.assertEqual(2 * GIB, self.grow("--grow-fs")["filesystem_bytes"])
        self.assertIsNone(self.listed()["Growth"])
        self.local("detach", "data")
        said = self.local("grow", "data", code=1)
        self.assertIn("is not attached to this host", said)

    def test_file_system_grows_at_attach_if_asked(self):
        volume = self.volume()
        self.attach("--mkfs", "xfs", "--assume-empty")
        self.local("detach", "data")
        self.extend(volume)
        self.assertEqual(2 * GIB, self.attach("--grow-fs")["filesystem_bytes"])

    def test_file_system_of_a_shared_volume_does_not_grow(self):
        volume = self.create_multiattach_volume()
        self.attach("--mkfs", "xfs", "--assume-empty")
        other = self.storage.post(
            "/attachments", microversion="3.44",
            json={"attachment": {"volume_uuid": volume, "connector": {"host": "other"}}},
        )  # fmt: skip
        self.assertEqual(200, other.status_code, other.text)
        self.extend(volume)
        said = self.grow(code=1)
        self.assertRegex(said, "xfs has 1 of 2 GiB: the volume is attached to other too")
        self.assertIn("attached to other too", self.listed()["Growth"])
        self.assertEqual(2 * GIB, self.listed()["Size"])
        self.storage.delete(
            f"/attachments/{other.json()['attachment']['id']}", microversion="3.44"
        )
        self.assertEqual(2 * GIB, self.grow()["filesystem_bytes"])

    def test_watching_restore_lets_it_grow(self):
        volume = self.volume()
        shown = self.attach("--mkfs", "xfs", "--assume-empty")
        watch = subprocess.Popen(
            [processes.script("attachd"), "local-restore", "--watch", "--hostname", self.name],
            env=self.environment,
            stdout=subprocess.DEVNULL,
        )
        self.addCleanup(watch.wait, TIMEOUT)
        self.addCleanup(watch.terminate)
        self.extend(volume)
        wait_until(lambda: self.listed()["File System Size"] == 2 * GIB, self.listed)
        self.assertEqual(2 * GIB, block_device.size(shown["path"]))
