# SPDX-License-Identifier: Apache-2.0
"""Order and refusals of steps; functional/test_docker_volume.py has real mounts."""

import os
from pathlib import Path
import unittest

from attachd import exception
from attachd.docker_volume import mounting
from attachd.docker_volume.mounting import Mounter, Settings
from attachd.docker_volume.named_volumes import NamedVolumes
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.platforms.publication import Fence, Publisher
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.unit.docker_volume import fake_host
from attachd.tests.unit.platforms.fake_storage import FakeStorage, make_attachment, refusal


class MounterTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.named = NamedVolumes(self.storage, 1)
        self.folder = temp_dir(self)
        self.agent = fake_host.FakeAgent({})
        publisher = Publisher(self.storage, Fence.NEVER)
        self.mounter = Mounter(self.named, publisher, self.agent, Settings(self.folder))
        self.staged = self.mounter.volumes = fake_host.FakeVolumes()
        self.mounter.host = fake_host.identity()
        self.volume = self.storage.add(
            name="data", metadata={"docker.name": "data", "docker.volume": "true"}
        )

    def mount(self, use, time_limit=30.0):
        with calls.serving(Call.start(time_limit)):
            return self.mounter.mount("data", use, os.getpid())

    def uses(self):
        """Return the uses that are recorded, or None if the volume is not staged."""
        staging = self.staged.staged.get(self.volume.id)
        return None if staging is None else staging.uses

    def requests(self):
        return [name for name, _ in self.storage.requested if name in {"attach", "detach"}]

    def test_containers_share_attachment_and_last_unmount_detaches(self):
        for use in ("a", "b", "a"):
            self.assertEqual(f"{self.folder}/data", self.mount(use))
        self.assertEqual(("a", "b"), self.uses())
        self.assertEqual(self.volume.id, self.mounter.find_staged("data").volume_id)
        for use, expected in (("x", ("a", "b")), ("a", ("b",)), ("b", None), ("b", None)):
            self.mounter.unmount("data", use)
            self.assertEqual(expected, self.uses())
        self.assertEqual(["attach", "detach"], self.requests())
        self.assertFalse(self.mounter.engines.will_end(self.volume.id, "a"))

    def test_volume_of_other_host_is_refused_with_its_name(self):
        self.storage.attached.append(make_attachment(self.volume.id, "web-2"))
        with self.assertRaisesRegex(
            CallError, r"Volume data \(.*\) is attached to host web-2\. Stop .* host-fence web-2"
        ):
            self.mount("a")
        self.assertEqual([], self.requests())

    def test_readers_share_multiattach_volume(self):
        self.storage.attached.append(make_attachment(self.volume.id, "web-2", mode="ro"))
        for is_multiattach, mode, succeeds in (
            (True, "ro", True),
            (True, "rw", False),
            (False, "ro", False),
        ):
            metadata = {**self.volume.metadata, "docker.option.mode": mode}
            self.storage.change(self.volume.id, is_multiattach=is_multiattach, metadata=metadata)
            if succeeds:
                self.mount("a")
                self.assertTrue(self.staged.staged[self.volume.id].read_only)
                self.mounter.unmount("data", "a")
            else:
                self.assertRaises(CallError, self.mount, "a")

    def test_other_work_on_volume_is_waited_for(self):
        self.staged.errors = [fake_host.conflict(), None, fake_host.conflict(), None]
        self.mount("a")
        self.assertEqual(("a",), self.uses())
        self.staged.errors = [fake_host.conflict()] * 99
        with self.assertRaisesRegex(CallError, "Another process works on it. Repeat"):
            self.mount("b", time_limit=0.5)

    def test_volume_that_cannot_be_mounted_is_given_back(self):
        self.staged.errors = [exception.HostError(reason="It has other data.")]
        with self.assertRaisesRegex(exception.HostError, "other data"):
            self.mount("a")
        self.assertEqual(["attach", "detach"], self.requests())
        self.staged.errors = [exception.HostError(reason="It has other data.")]
        self.storage.failures = [None, refusal(409, "device_busy")]
        with (
            self.assertLogs("attachd.docker_volume.mounting", "WARNING"),
            self.assertRaisesRegex(exception.HostError, "other data"),
        ):
            self.mount("a")

    def test_caller_that_has_given_up_has_no_use(self):
        with self.assertRaisesRegex(CallError, "is mounted now. Repeat"):
            self.mount("a", time_limit=0.0)
        self.assertEqual((), self.uses())
        self.mount("a")
        self.assertEqual(("a",), self.uses())

    def test_unmount_after_kill_between_steps_detaches(self):
        self.storage.attached.append(make_attachment(self.volume.id, fake_host.HOST))
        self.mounter.unmount("data", "a")
        self.assertEqual(["detach"], self.requests())
        self.mounter.unmount("unknown", "a")

    def test_volume_with_uses_is_not_given_back_or_removed(self):
        self.mount("a")
        self.mounter.give_back(self.volume.id, self.mounter.path("data"))
        self.assertEqual(["attach"], self.requests())
        with self.assertRaisesRegex(CallError, "attached to one, and is not removed"):
            self.mounter.remove("data")
        self.mounter.unmount("data", "a")
        for _ in range(2):
            self.mounter.remove("data")
        self.assertEqual({}, self.storage.volumes)

    def test_unknown_volume_is_not_mounted(self):
        with self.assertRaisesRegex(CallError, "There is no volume other"):
            self.mounter.mount("other", "a", os.getpid())

    def test_only_new_file_system_loses_its_directory(self):
        (self.folder / "lost+found").mkdir()
        (self.folder / "file").touch()
        mounting._remove_lost_and_found(f"{self.folder}")
        self.assertTrue((self.folder / "lost+found").exists())
        (self.folder / "file").unlink()
        mounting._remove_lost_and_found(f"{self.folder}")
        self.assertEqual([], list(Path(self.folder).iterdir()))
        mounting._remove_lost_and_found(f"{self.folder}/missing")
