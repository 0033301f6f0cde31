# SPDX-License-Identifier: Apache-2.0
"""A host records each step before it takes it, and reports what it cannot do."""

import dataclasses
from pathlib import Path
import socket
import unittest
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent import host
from attachd.agent.connectors.base import Device, Options
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Step
from attachd.agent.mount import open_handles
from attachd.linux import block_device
from attachd.tests.fixtures import fake_host, lifetime

INFO = {"driver_volume_type": "memory", "target": "t1"}


class HostTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.connector = fake_host.FileConnector(lifetime.temp_dir(self))
        self.top = lifetime.temp_dir(self)
        self.host = self.make()

    def make(self, connector_type="file"):
        with mock.patch.object(host, "make_connector", return_value=self.connector) as self.chosen:
            return Host(Identity("compute-1", "iqn.x"), self.top, connector_type)

    def entry(self, **values):
        return Entry("v", **{"connection_info": INFO, **values})

    def stored(self, entry):
        return self.host.journal.get(entry.id)

    def test_host_has_name_and_connector(self):
        self.assertEqual("compute-1", self.host.get_connector_properties(Options())["host"])
        self.chosen.assert_called_once_with("file", self.top, "iqn.x")

    def test_host_name_defaults_to_hostname(self):
        self.assertEqual((socket.gethostname(), None), (Identity().name, Identity().initiator))

    def test_check_names_all_missing_requirements(self):
        self.connector.lacking = ["iscsiadm (package open-iscsi)"]
        with (
            mock.patch("os.geteuid", return_value=1000),
            mock.patch("attachd.agent.mount.mounts.missing_tools", return_value=["mkfs.x"]),
            self.assertRaises(exception.MissingRequirements) as lacking,
        ):
            self.host.check(tools=["mkfs.x"])
        for text in ("compute-1", "sudo", "iscsiadm (package open-iscsi)", "mkfs.x"):
            self.assertIn(text, str(lacking.exception))

    def test_check_of_complete_host_passes(self):
        with mock.patch("os.geteuid", return_value=0):
            self.host.check("memory", tools=["true"])

    def test_connect_writes_journal_before_and_after(self):
        entry, seen = self.entry(), []
        real = self.connector.connect

        def connect(*args):
            seen.append(self.stored(entry))
            return real(*args)

        with mock.patch.object(self.connector, "connect", connect):
            made = self.host.connect(entry)
        (before,) = seen
        self.assertEqual(
            (Step.CONNECTING, "file", None), (before.step, before.connector_type, before.device)
        )
        self.assertEqual(str(self.connector.path("t1")), made.device.path)
        self.assertEqual(made, self.stored(entry))
        self.assertTrue(self.host.is_present(made))

    def test_failed_connect_stores_error(self):
        entry = self.entry()
        self.connector.failing.add("connect")
        with self.assertRaises(exception.HostError):
            self.host.connect(entry)
        stored = self.stored(entry)
        self.assertEqual((None, "It could not connect."), (stored.device, stored.error))
        self.connector.failing.clear()
        self.assertIsNone(self.host.connect(stored).error)

    def test_disconnect_writes_journal_before_and_after(self):
        made, seen = self.host.connect(self.entry()), []
        real = self.connector.disconnect

        def disconnect(*args, **kwargs):
            seen.append(self.stored(made))
            real(*args, **kwargs)

        with mock.patch.object(self.connector, "disconnect", disconnect):
            gone = self.host.disconnect(made)
        self.assertEqual((Step.DISCONNECTING, made.device), (seen[0].step, seen[0].device))
        self.assertEqual((Step.DISCONNECTING, None), (gone.step, self.stored(made).device))
        self.assertFalse(self.host.is_present(gone))

    def test_disconnect_of_device_in_use_needs_force(self):
        made = self.host.connect(self.entry())
        with Path(made.device.path).open("rb"):
            with self.assertRaises(exception.DeviceBusy):
                self.host.disconnect(made)
            self.assertEqual((Step.CONNECTING, ["t1"]), (self.stored(made).step, self.devices()))
            self.host.disconnect(made, force=True)
        self.assertEqual([], self.devices())

    def test_forced_disconnect_fails_while_removed_device_is_in_use(self):
        made = self.host.connect(self.entry())
        busy = exception.DeviceBusy(device=made.device.path, users="process 7")
        with (
            mock.patch.object(open_handles, "list_numbers", return_value=(1234,)),
            mock.patch.object(open_handles, "check_removed_unused", side_effect=busy) as check,
        ):
            for force in (True, False):
                with self.assertRaisesRegex(exception.DeviceBusy, "process 7"):
                    self.host.disconnect(self.stored(made), force=force)
                check.assert_called_with(made.device.path, (1234,))
        self.assertEqual(([], made.device), (self.devices(), self.stored(made).device))
        with mock.patch.object(open_handles, "check_removed_unused"):
            self.assertEqual((), self.host.disconnect(self.stored(made)).device_numbers)

    def devices(self):
        return self.connector.devices()

    def test_disconnect_ignores_users_of_reused_path(self):
        """After a reboot the recorded path may be another device."""
        made = self.host.connect(self.entry())
        result = mock.Mock(wraps=self.connector.disconnect)
        with (
            Path(made.device.path).open("rb"),
            mock.patch.object(self.connector, "is_present", return_value=False),
            mock.patch.object(self.connector, "disconnect", result),
        ):
            self.host.disconnect(made)
        self.assertIsNone(result.call_args.args[2])

    def test_disconnect_of_moved_disk_in_use_is_refused(self):
        """The connector may search for the device at the wrong path."""
        made = self.host.connect(self.entry())
        made = dataclasses.replace(made, device=Device(made.device.path, {"identity": "naa.6"}))
        with (
            Path(made.device.path).open("rb"),
            mock.patch.object(self.connector, "is_present", return_value=False),
            mock.patch.object(block_device, "identity", side_effect=["naa.6", "naa.7"]),
        ):
            with self.assertRaises(exception.DeviceBusy):
                self.host.disconnect(made)
            self.host.disconnect(made)

    def test_disconnect_without_presence_check_trusts_path(self):
        made = self.host.connect(self.entry())
        unknown = exception.HostError(reason="The device is unknown.")
        with (
            Path(made.device.path).open("rb"),
            mock.patch.object(self.connector, "is_present", side_effect=unknown),
            self.assertRaises(exception.DeviceBusy),
        ):
            self.host.disconnect(made)

    def test_hanging_presence_check_is_not_taken_for_presence(self):
        made = self.host.connect(self.entry())
        hangs = exception.HostHangs(pid=7, seconds="1")
        for call in (self.host.disconnect, self.host.check_unused):
            with (
                mock.patch.object(self.connector, "is_present", side_effect=hangs),
                self.assertRaises(exception.HostHangs),
            ):
                call(made)
        self.assertEqual(made, self.stored(made))

    def test_is_shared_compares_device_with_connection(self):
        made, info = self.host.connect(self.entry()), {**INFO, "target": "t2"}
        unknowing, other = self.entry(), self.entry(connection_info=info, device=made.device)
        self.assertTrue(self.host.is_shared(unknowing, made))
        self.assertFalse(self.host.is_shared(other, made))
        self.assertFalse(self.host.is_shared(made, other))
        self.assertFalse(self.host.is_shared(made, unknowing))

    def test_failed_disconnect_stores_error(self):
        made = self.host.connect(self.entry())
        self.connector.failing.add("disconnect")
        with self.assertRaises(exception.HostError):
            self.host.disconnect(made)
        stored = self.stored(made)
        self.assertEqual((made.device, "It could not disconnect."), (stored.device, stored.error))

    def test_disconnect_of_unconnected_entry_succeeds(self):
        self.host.disconnect(self.entry(connection_info=None))
        self.assertEqual([], self.connector.calls)

    def test_extend_returns_new_size(self):
        made = self.host.connect(self.entry())
        self.connector.size_gib = 2
        self.assertEqual(2 * fake_host.GIB, self.host.extend(made))

    def test_entry_uses_connector_type_it_was_attached_by(self):
        other = mock.Mock()
        entry = self.entry(connector_type="other", device=Device("/dev/x", {}))
        with mock.patch.object(host, "make_connector", return_value=other) as choose:
            self.host.disconnect(entry)
        choose.assert_called_with("other", self.top, "iqn.x")
        self.assertEqual(1, other.disconnect.call_count)
        self.assertEqual([], self.connector.calls)


class MakeConnectorTest(fixtures.TestWithFixtures):
    """Selection of the connector, by name or by the tools of the host."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def chosen(self, *, scsi, lacking):
        if scsi:
            (self.folder / "scsi_host").mkdir(exist_ok=True)
        with (
            fixtures.MonkeyPatch("attachd.agent.host._SCSI", self.folder / "scsi_host"),
            fixtures.MonkeyPatch(
                "shutil.which", lambda name, path: None if name in lacking else name
            ),
            fixtures.MonkeyPatch("os.access", lambda *_: True),
        ):
            return host.make_connector(host.AUTO, self.folder).TYPE

    def test_make_connector_returns_requested_type(self):
        for name in ("kernel", "user-space"):
            self.assertEqual(name, host.make_connector(name, self.folder, "iqn.2026-01.x:me").TYPE)

    def test_make_connector_of_unknown_type_raises_with_choices(self):
        for wrong in ("", "Kernel", "os-brick"):
            with self.assertRaisesRegex(exception.HostError, "of: auto, kernel, user-space"):
                host.make_connector(wrong, self.folder)

    def test_auto_type_is_kernel_unless_only_qemu_works(self):
        daemon = "qemu-storage-daemon"
        for scsi, lacking, expected in (
            (False, [], "user-space"),
            (False, [daemon], "kernel"),
            (False, ["iscsiadm", daemon], "kernel"),
            (True, ["iscsiadm"], "user-space"),
            (True, ["iscsiadm", daemon], "kernel"),
            (True, [daemon], "kernel"),
            (True, [], "kernel"),
        ):
            with self.subTest(scsi=scsi, lacking=lacking):
                self.assertEqual(expected, self.chosen(scsi=scsi, lacking=lacking))
