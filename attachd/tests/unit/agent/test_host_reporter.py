# SPDX-License-Identifier: Apache-2.0
"""The report of an agent describes its host, and the manager accepts it."""

from pathlib import Path
import threading
from unittest import mock

from attachd import service
from attachd.agent import host_reporter
from attachd.agent.connectors.base import Device, Options
from attachd.agent.host_reporter import CONNECTOR_TTL, HostReporter
from attachd.agent.journal import Entry, Owner
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.agent.other_devices import OtherDevices
from attachd.agent.worker_pool import DEFAULT_TIMEOUT
from attachd.linux.mountinfo import Mount
from attachd.manager.agents import report_schema
from attachd.rpc.agent_manager_api import MAX_ASKED, MAX_OBSERVED
from attachd.tests.fixtures import fake_agent, fake_host
from attachd.tests.wait import TIMEOUT


class ReportTest(fake_host.FakeHostCase):
    def setUp(self):
        super().setUp()
        self.clock = 1000.0
        self.enterContext(mock.patch.object(host_reporter, "monotonic", lambda: self.clock))
        self.reporter = HostReporter(self.host, Options(multipath=True))

    def report(self, *entries):
        for entry in entries:
            self.host.journal.write(entry)
        said = self.reporter.report()
        for entry in entries:
            self.host.journal.remove(entry)
        report_schema.check_report(fake_agent.make_report(fake_host.NAME, **said))
        return said

    def entry(self, **values):
        device = self.connector.connect({"target": "t1"}, Options())
        values = {"owner": Owner.AGENT, "attachment_id": "a", "device": device, **values}
        return Entry("v", connection_info={"target": "t1"}, **values)

    def test_report_has_connector_properties(self):
        expected = {
            "connector": {"host": fake_host.NAME, "multipath": True},
            "devices": [],
            "connector_type": "file",
            "version": service.version(),
            "error": None,
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
            "stops_writers": True,
            "observed": None,
        }
        self.assertEqual(expected, self.report())

    def test_report_of_host_with_missing_tools_has_error(self):
        self.connector.lacking.append("iscsiadm (package open-iscsi)")
        said = self.report()
        self.assertIsNone(said["connector"])
        self.assertIn("iscsiadm (package open-iscsi)", said["error"])

    def test_report_of_host_without_initiator_has_error(self):
        self.connector.failing.add("connector")
        self.assertEqual("It could not connector.", self.report()["error"])
        self.connector.failing.clear()
        self.assertIsNone(self.report()["error"])

    def test_report_caches_connector_for_ttl(self):
        for _ in range(2):
            self.report()
        self.assertEqual(["connector"], self.connector.calls)
        self.clock += CONNECTOR_TTL + 1
        self.report()
        self.assertEqual(["connector"] * 2, self.connector.calls)

    def test_slow_host_repeats_its_last_report_until_the_usual_timeout(self):
        first, gate = self.report(), threading.Event()
        self.addCleanup(gate.set)
        with mock.patch.object(self.host, "check", lambda: gate.wait(TIMEOUT)):
            self.assertEqual(first, self.reporter.report(0.01))
            self.clock += DEFAULT_TIMEOUT
            said = self.reporter.report(0.01)
            self.assertIn("a command of it hangs", said["error"])
            self.assertIsNone(said["connector"])
            gate.set()
            self.assertEqual(first, self.report())

    def test_report_with_unreadable_journal_has_error(self):
        broken = self.top / "attachments" / "x.json"
        broken.parent.mkdir()
        broken.write_text("{")
        said = self.report()
        self.assertIn("x.json cannot be read", said["error"])
        self.assertEqual((None, []), (said["connector"], said["devices"]))

    def test_report_has_device_with_size(self):
        (device,) = self.report(self.entry())["devices"]
        path = str(self.connector.path("t1"))
        expected = {
            "attachment_id": "a",
            "volume_id": "v",
            "mountpoint": None,
            "paths": [],
            "last_io_error": None,
            "filesystem": None,
            "filesystem_bytes": None,
            "growth": None,
        }
        self.assertEqual({**expected, "path": path, "size_bytes": fake_host.GIB}, device)

    def test_report_has_file_system_that_is_smaller_than_its_device(self):
        self.connector.size_gib = 2  # It has grown since.
        state = FilesystemState("xfs", fake_host.GIB, fake_host.GIB, 7, "no\n" * 200)
        (device,) = self.report(self.entry(filesystem=state))["devices"]
        self.assertEqual(
            ("xfs", fake_host.GIB), (device["filesystem"], device["filesystem_bytes"])
        )
        self.assertTrue(device["growth"].startswith("xfs has 1 of 2 GiB: nono"))
        self.assertEqual(255, len(device["growth"]))

    def test_report_of_missing_device_has_no_path(self):
        entries = [self.entry(), self.entry(device=None), self.entry(device=Device("/x", {}))]
        self.connector.reboot()
        for entry in entries:
            (device,) = self.report(entry)["devices"]
            self.assertEqual((None, None), (device["path"], device["size_bytes"]))

    def test_report_omits_devices_of_commands(self):
        self.assertEqual([], self.report(self.entry(owner=Owner.LOCAL))["devices"])

    def test_report_has_mountpoint_of_device(self):
        path = str(self.connector.path("t1"))
        moment = [Mount(1, 0, number, f"/mnt/{number}", False, "ext4", path) for number in (5, 7)]
        with (
            mock.patch("attachd.linux.device_nodes.stat_device") as stat_device,
            mock.patch("attachd.linux.mountinfo.list_mounts", return_value=moment),
        ):
            stat_device.return_value.device_numbers.return_value = [7]
            (device,) = self.report(self.entry())["devices"]
        self.assertEqual("/mnt/7", device["mountpoint"])


class OthersTest(fake_host.FakeHostCase):
    """What the report says of devices that the agent has not made."""

    def setUp(self):
        super().setUp()
        self.others = mock.create_autospec(OtherDevices, instance=True)
        self.others.find.return_value = []
        self.reporter = HostReporter(self.host, Options(), self.others)

    def test_report_has_the_last_requests_before_it_was_built(self):
        self.assertEqual({"devices": [], "asked": []}, self.reporter.report()["observed"])
        ids = [f"{number:032x}" for number in range(MAX_ASKED + 1)]
        for request_id in ids:
            self.reporter.note_request(request_id)
        said = self.reporter.report()
        self.assertEqual(ids[1:], said["observed"]["asked"])
        report_schema.check_report(fake_agent.make_report(fake_host.NAME, **said))

    def test_request_while_the_host_is_read_is_not_answered(self):
        def find():
            self.reporter.note_request("a" * 32)
            return []

        self.others.find.side_effect = find
        self.assertEqual([], self.reporter.report()["observed"]["asked"])
        self.assertEqual(["a" * 32], self.reporter.report()["observed"]["asked"])

    def test_repeated_report_of_hanging_host_answers_no_request(self):
        self.reporter.report()
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.others.find.side_effect = lambda: gate.wait(TIMEOUT) and []
        self.reporter.note_request("a" * 32)
        self.assertEqual([], self.reporter.report(0.01)["observed"]["asked"])

    def test_files_that_vanish_while_they_are_read_do_not_fail_the_report(self):
        gone = FileNotFoundError("/sys/class/nvme/nvme0")
        self.others.find.side_effect = [gone, ValueError("size"), []]
        self.assertEqual([], self.reporter.report()["observed"]["devices"])
        self.others.find.side_effect = gone
        said = self.reporter.report()
        self.assertEqual((None, None), (said["observed"], said["error"]))

    def test_too_many_devices_are_not_reported(self):
        self.others.find.return_value = [{}] * (MAX_OBSERVED + 1)
        self.assertIsNone(self.reporter.report()["observed"])
