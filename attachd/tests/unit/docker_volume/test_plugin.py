# SPDX-License-Identifier: Apache-2.0
import os
import unittest
from unittest import mock

from attachd import exception
from attachd.docker_volume.mounting import Mounter, Settings
from attachd.docker_volume.named_volumes import NamedVolumes
from attachd.docker_volume.plugin import Plugin
from attachd.docker_volume.server import Caller
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.publication import Fence, Publisher
from attachd.tests.fixtures import metric_samples
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.unit.docker_volume import fake_host
from attachd.tests.unit.platforms.fake_storage import FakeStorage

_CALLER = Caller(os.getpid(), lambda: True)


class PluginTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        named = NamedVolumes(self.storage, 1)
        publisher = Publisher(self.storage, Fence.NEVER)
        self.folder = temp_dir(self)
        settings = Settings(self.folder)
        self.mounter = Mounter(named, publisher, fake_host.FakeAgent({}), settings)
        self.mounter.volumes = fake_host.FakeVolumes()
        self.mounter.host = fake_host.identity()
        self.plugin = Plugin(named, self.mounter, CallMetrics("docker"))

    def call(self, name, **fields):
        answer = self.plugin.serve(f"VolumeDriver.{name}", fields, _CALLER)
        self.assertEqual("", answer.pop("Err"))
        return answer

    def make_fail(self, name, **fields):
        answer = self.plugin.serve(f"VolumeDriver.{name}", fields, _CALLER)
        self.assertEqual(["Err"], list(answer))
        self.assertRegex(answer["Err"], r"\(req-[0-9a-f-]+\)$")
        return answer["Err"]

    def create(self):
        self.storage.statuses = ["available"] * 2
        self.call("Create", Name="data", Opts={"size": "2"})

    def test_plugin_is_driver_of_volumes_for_all_hosts(self):
        answer = self.plugin.serve("Plugin.Activate", {}, _CALLER)
        self.assertEqual(["VolumeDriver"], answer["Implements"])
        self.assertEqual({"Capabilities": {"Scope": "global"}}, self.call("Capabilities"))

    def test_life_of_volume(self):
        self.assertIn("There is no volume data.", self.make_fail("Get", Name="data"))
        self.create()
        (volume,) = self.storage.volumes.values()
        shown = self.call("Get", Name="data")["Volume"]
        self.assertEqual(("data", ""), (shown["Name"], shown["Mountpoint"]))
        self.assertEqual((volume.id, 2), (shown["Status"]["id"], shown["Status"]["size_gib"]))
        listed = self.call("List")["Volumes"]
        self.assertEqual([{"Name": "data", "Mountpoint": ""}], listed)
        path = f"{self.folder}/data"
        self.assertEqual({"Mountpoint": path}, self.call("Mount", Name="data", ID="a"))
        self.assertEqual({"Mountpoint": ""}, self.call("Path", Name="data"))
        with mock.patch("attachd.linux.mountinfo.find_at"):
            self.assertEqual({"Mountpoint": path}, self.call("Path", Name="data"))
        self.assertIn("is attached to one", self.make_fail("Remove", Name="data"))
        self.call("Unmount", Name="data", ID="a")
        for _ in range(2):
            self.call("Remove", Name="data")
        self.assertEqual({}, self.storage.volumes)

    def test_caller_that_leaves_has_no_use(self):
        self.create()
        waits = iter([True, True, False])
        caller = Caller(os.getpid(), lambda: next(waits))
        with self.assertLogs("attachd.docker_volume.plugin", "WARNING"):
            answer = self.plugin.serve("VolumeDriver.Mount", {"Name": "data", "ID": "a"}, caller)
        self.assertIn("The caller has ended the call.", answer["Err"])
        (staging,) = self.mounter.volumes.staged.values()
        self.assertEqual((), staging.uses)

    def test_malformed_fields_are_refused(self):
        for name in (None, 1, "", "../x", "a/b", "-a", "a" * 256, "a\n"):
            self.assertIn("Name has to be", self.make_fail("Create", Name=name))
        self.assertIn("Opts has to be", self.make_fail("Create", Name="data", Opts=["size"]))
        self.assertIn("Opts has to be", self.make_fail("Create", Name="data", Opts={"size": 1}))
        for use in (1, "a" * 257):
            self.assertIn("ID has to be", self.make_fail("Mount", Name="data", ID=use))
        self.assertIn("no option sise", self.make_fail("Create", Name="data", Opts={"sise": "1"}))
        self.assertIn("There is no call", self.make_fail("Destroy"))

    def test_errors_of_host_are_shown_and_others_are_logged(self):
        self.create()
        for error, expected in (
            (
                exception.HostError(reason="The agent does not answer."),
                "The agent does not answer.",
            ),
            (ZeroDivisionError("division"), "The log of the plugin has the reason."),
        ):
            self.mounter.volumes.errors = [error]
            with self.assertLogs("attachd.docker_volume.plugin", "WARNING"):
                self.assertIn(expected, self.make_fail("Mount", Name="data", ID="a"))

    def test_calls_are_counted_and_unknown_ones_as_other(self):
        metric_samples.use(self)
        self.call("Capabilities")
        self.make_fail("Get", Name="data")
        self.make_fail("Unknown")
        for name, outcome in (
            ("VolumeDriver.Capabilities", "ok"),
            ("VolumeDriver.Get", "not_found"),
            ("other", "invalid_argument"),
        ):
            labels = {"driver": "docker", "call": name, "outcome": outcome}
            value = metric_samples.sample_value("attachd_platform_calls_total", **labels)
            self.assertEqual(1.0, value, name)
