# SPDX-License-Identifier: Apache-2.0
"""The connector type user-space; functional/test_host_connectors.py has real backends."""

from pathlib import Path
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.connectors.base import Device, Options
from attachd.agent.connectors.qemu import connector
from attachd.agent.connectors.qemu.connector import QemuConnector

INFO = {"driver_volume_type": "iscsi", "target_portal": "a:1", "target_iqn": "i", "target_lun": 1}


class LacksTest(fixtures.TestWithFixtures):
    """Missing tools, by protocol."""

    def setUp(self):
        super().setUp()
        self.connector = QemuConnector(Path(self.useFixture(fixtures.TempDir()).path))

    def test_missing_requirements_without_commands_names_packages(self):
        with fixtures.MonkeyPatch("shutil.which", lambda *_, **__: None):
            lacking = self.connector.missing_requirements("iscsi")
            self.assertIn("qemu-storage-daemon (package qemu-system-common)", lacking)
            self.assertIn("losetup (package mount)", lacking)
            self.assertEqual(["sync (package coreutils)"], self.connector.missing_requirements())
            self.assertEqual(
                ["sync (package coreutils)"], self.connector.missing_requirements("LOCAL")
            )

    def test_missing_requirements_without_qemu_driver_names_it(self):
        unknown = exception.HostError(reason="qemu: Unknown driver 'iscsi'")
        with (
            fixtures.MonkeyPatch("attachd.agent.connectors.qemu.connector.missing_tools", list),
            mock.patch("attachd.linux.commands.run", side_effect=unknown),
        ):
            self.assertEqual(
                ["QEMU's driver for iscsi (package qemu-block-extra)"],
                self.connector.missing_requirements("iscsi"),
            )
        needs_more = exception.HostError(reason="qemu: Parameter 'transport' is missing")
        with (
            fixtures.MonkeyPatch("attachd.agent.connectors.qemu.connector.missing_tools", list),
            mock.patch("attachd.linux.commands.run", side_effect=needs_more),
        ):
            self.assertEqual([], self.connector.missing_requirements("iscsi"))

    def test_missing_requirements_of_unknown_protocol_suggests_kernel(self):
        (lacking,) = self.connector.missing_requirements("fibre_channel")
        self.assertIn("choose connector type kernel", lacking)


class ConnectorTest(fixtures.TestWithFixtures):
    """Connector properties of the host."""

    def test_connector_properties_have_name_address_and_initiator(self):
        connector = QemuConnector(Path("/nowhere"), "iqn.2026-01.x:me")
        result = connector.get_connector_properties("me", Options(nic="lo", multipath=True))
        self.assertEqual(
            ("me", "127.0.0.1", "iqn.2026-01.x:me", False),
            tuple(result[text] for text in ("host", "ip", "initiator", "multipath")),
        )


class AbsentTest(fixtures.TestWithFixtures):
    """Volumes that were never connected."""

    def test_unconnected_volume_is_absent_and_leaves_no_files(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        connector = QemuConnector(folder, "iqn.2026-01.x:me")
        device = Device("/dev/loop0", {})
        self.assertFalse(connector.is_present(INFO, device))
        connector.disconnect(INFO, Options(), None)
        with self.assertRaisesRegex(exception.HostError, "not connected"):
            connector.extend(INFO, Options(), device)
        self.assertEqual([], list(folder.iterdir()))


class InitiatorNameTest(fixtures.TestWithFixtures):
    """Sources of the initiator name."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.machine = self.folder / "etc"
        self.useFixture(
            fixtures.MonkeyPatch(f"{connector.__name__}.MACHINE_NAME_FILE", self.machine)
        )

    def test_configured_initiator_name_comes_first(self):
        self.machine.write_text("InitiatorName=iqn.2026-01.x:machine\n")
        self.assertEqual(
            "iqn.2026-01.x:me", connector.initiator_name("iqn.2026-01.x:me", self.folder)
        )

    def test_machine_initiator_name_comes_second(self):
        self.machine.write_text("## comment\n InitiatorName = iqn.2026-01.x:machine \n")
        self.assertEqual(
            "iqn.2026-01.x:machine", connector.initiator_name(None, self.folder / "host")
        )
        self.assertFalse((self.folder / "host").exists())

    def test_new_initiator_name_is_created_once(self):
        host = self.folder / "new" / "host"
        name = connector.initiator_name(None, host)
        self.assertRegex(name, r"^iqn\.2026-01\.internal\.attachd:[0-9a-f]{32}$")
        self.assertEqual(name, connector.initiator_name(None, host))
        self.assertNotEqual(name, connector.initiator_name(None, self.folder))
        self.assertEqual(["etc"], [path.name for path in host.iterdir()])

    def test_invalid_initiator_name_raises(self):
        for wrong in ("", "me", "iqn.", "iqn.2026-01.x:with space", "iqn." + "x" * 220):
            with self.assertRaisesRegex(exception.HostError, "no iSCSI name"):
                connector.initiator_name(wrong, self.folder)

    def test_unreadable_initiator_file_is_not_replaced(self):
        self.machine.mkdir()
        with self.assertRaisesRegex(exception.HostError, "cannot be read"):
            connector.initiator_name(None, self.folder)
