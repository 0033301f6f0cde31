# SPDX-License-Identifier: Apache-2.0
"""The checks of a host."""

import os
from pathlib import Path
import unittest
from unittest import mock

from openstack import exceptions

from attachd.agent.connectors.base import Device
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Step
from attachd.client import doctor
from attachd.client.service import Service
from attachd.tests.fixtures import lifetime


class DoctorTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        identity = Identity("h", "iqn.2026-01.test:h")
        self.host = Host(identity, self.folder / "host", "user-space")
        self.service = mock.create_autospec(Service, instance=True)
        self.enterContext(mock.patch.object(os, "geteuid", return_value=0))
        self.which = self.enterContext(
            mock.patch("attachd.linux.commands.which", return_value="/x")
        )

    def diagnose(self):
        """Return the checks by their names, and whether the host can attach."""
        checks = doctor.diagnose(self.host, self.service)
        return {check.name: check for check in checks}, doctor.can_attach(checks)

    def test_doctor_names_missing_packages(self):
        self.which.return_value = None
        checks, can_attach = self.diagnose()
        self.assertFalse(can_attach)
        self.assertEqual("missing", checks["mount"].result)
        self.assertIn("blkid (package util-linux)", checks["mount"].remedy)
        self.assertIn("iscsiadm", checks["iscsi volumes (kernel)"].remedy)
        self.assertEqual("missing", checks["volumes"].result)

    def test_doctor_names_missing_rights_and_service(self):
        self.service.check.side_effect = exceptions.SDKException("no answer")
        with mock.patch.object(os, "geteuid", return_value=1000):
            checks, can_attach = self.diagnose()
        self.assertFalse(can_attach)
        self.assertIn("sudo", checks["rights"].remedy)
        self.assertEqual(
            ("missing", "no answer"), (checks["service"].result, checks["service"].remedy)
        )

    def test_doctor_without_access_to_journal_names_it_and_continues(self):
        # As pathlib of Python 3.11 below a directory of another user with mode 0700.
        denied = PermissionError(13, "Permission denied", "/var/lib/attachd/host")
        with mock.patch.object(Path, "exists", autospec=True, side_effect=denied):
            checks, can_attach = self.diagnose()
        self.assertFalse(can_attach)
        self.assertEqual("missing", checks["journal"].result)
        self.assertIn("Permission denied: '/var/lib/attachd/host'", checks["journal"].remedy)
        self.assertEqual("ok", checks["service"].result)

    def test_doctor_names_missing_devices(self):
        info = {"driver_volume_type": "local", "device_path": f"{self.folder / 'gone'}"}
        device = Device(info["device_path"], {})
        entry = Entry("v", step=Step.ATTACHED, connection_info=info, device=device)
        self.host.journal.write(entry)
        checks, can_attach = self.diagnose()
        self.assertFalse(can_attach)
        self.assertIn("local-restore", checks["journal"].remedy)

    def test_unused_kinds_of_volumes_are_no_obstacle(self):
        works = mock.patch(
            "attachd.agent.connectors.qemu.connector.QemuConnector.missing_requirements",
            return_value=[],
        )
        with works:
            checks, can_attach = self.diagnose()
        self.assertTrue(can_attach, checks)
        self.assertEqual("ok", checks["iscsi volumes (user-space)"].result)
