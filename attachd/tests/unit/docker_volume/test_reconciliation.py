# SPDX-License-Identifier: Apache-2.0
import os
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.docker_volume import mounting, reconciliation
from attachd.docker_volume.mounting import Mounter, Settings
from attachd.docker_volume.named_volumes import NamedVolumes
from attachd.docker_volume.reconciliation import Reconciler
from attachd.platforms.calls import CallError
from attachd.platforms.publication import Fence, Publisher
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.unit.docker_volume import fake_host
from attachd.tests.unit.platforms.fake_storage import FakeStorage, make_attachment, refusal

_GONE = 0


class ReconcilerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        named = NamedVolumes(self.storage, 1)
        publisher = Publisher(self.storage, Fence.NEVER)
        settings = Settings(temp_dir(self))
        self.mounter = Mounter(named, publisher, fake_host.FakeAgent({}), settings)
        self.staged = self.mounter.volumes = fake_host.FakeVolumes()
        self.mounter.host = fake_host.identity()
        self.has_users = self.enterContext(
            mock.patch.object(mounting, "has_users", return_value=False)
        )
        self.now = 100.0
        clock = mock.patch.object(reconciliation.time, "monotonic", lambda: self.now)
        self.enterContext(clock)
        self.reconciler = Reconciler(self.storage, self.mounter, 60)
        self.volume = self.storage.add(metadata={"docker.name": "data"})

    def mount(self, use, engine):
        self.mounter.mount("data", use, engine)

    def pass_time(self, seconds):
        self.now += seconds
        self.reconciler.reconcile()

    def is_attached(self):
        return bool(self.storage.attached)

    def test_use_of_living_engine_stays(self):
        self.mount("a", os.getpid())
        self.mount("b", _GONE)
        for _ in range(3):
            self.pass_time(100)
        self.assertEqual(("a", "b"), self.staged.staged[self.volume.id].uses)
        self.has_users.assert_not_called()

    def test_lost_use_ends_after_idle_time_without_users(self):
        self.mount("a", _GONE)
        self.pass_time(0)
        self.pass_time(59)
        self.assertTrue(self.is_attached())
        self.has_users.return_value = True
        self.pass_time(1)
        self.has_users.return_value = False
        self.pass_time(1)
        self.pass_time(59)
        self.assertTrue(self.is_attached())
        with self.assertLogs("attachd.docker_volume.mounting", "WARNING") as logs:
            self.pass_time(1)
        self.assertIn("use a is forgotten", logs.output[0])
        self.assertFalse(self.is_attached())
        self.assertEqual({}, self.staged.staged)

    def test_volume_that_is_mounted_at_last_moment_keeps_its_use(self):
        self.mount("a", _GONE)
        self.pass_time(0)
        give_back = self.mounter.forget_uses

        def mount_first(volume_id, path):
            self.mount("a", os.getpid())
            give_back(volume_id, path)

        self.mounter.forget_uses = mount_first
        self.pass_time(60)
        self.assertEqual(("a",), self.staged.staged[self.volume.id].uses)
        self.assertTrue(self.is_attached())

    def test_volume_that_was_not_detached_is_detached_later(self):
        self.mount("a", os.getpid())
        self.storage.failures = [refusal(503, "agent_unavailable")]
        with self.assertRaises(CallError):
            self.mounter.unmount("data", "a")
        self.pass_time(0)
        self.storage.failures = [refusal(503, "agent_unavailable", "No agent.")]
        with self.assertLogs("attachd.docker_volume.reconciliation", "WARNING") as logs:
            self.pass_time(60)
        self.assertIn("stays: No agent.", logs.output[0])
        self.pass_time(10)
        self.assertFalse(self.is_attached())

    def test_attachment_without_mount_is_given_back_unless_it_is_foreign(self):
        self.storage.attached.append(make_attachment(self.volume.id, fake_host.HOST))
        foreign = make_attachment(self.storage.add().id, fake_host.HOST)
        elsewhere = make_attachment(self.storage.add(metadata={"docker.name": "x"}).id, "other")
        self.storage.attached += [foreign, elsewhere]
        self.pass_time(0)
        self.pass_time(60)
        self.assertEqual([foreign, elsewhere], self.storage.attached)

    def test_run_goes_on_after_errors_and_reports_each_once(self):
        ended = mock.Mock(wait=mock.Mock(side_effect=[False, False, False, False, True]))
        failure = exception.HostError(reason="No agent answers.")
        errors = [failure, failure, ZeroDivisionError(), None]
        self.mounter.list_staged = mock.Mock(side_effect=[*errors[:3], []])
        with self.assertLogs("attachd.docker_volume.reconciliation") as logs:
            self.reconciler.run(ended)
        self.assertEqual(2, len(logs.records), logs.output)
        self.assertIn("No agent answers.", logs.output[0])

    def test_run_ends_by_event(self):
        ended = threading.Event()
        ended.set()
        self.reconciler.run(ended)
