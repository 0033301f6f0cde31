# SPDX-License-Identifier: Apache-2.0
"""The command by itself; functional/test_processes tests it as a process."""

import io
from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.cmd import manager
from attachd.conf import CONF
from attachd.manager.service import ManagerService
from attachd.tests.fixtures import conf_fixture, key_files


class MainTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.prepare = self.patch("attachd.service.prepare")
        self.load = self.patch("attachd.manager.backends.load")
        self.launch = self.patch("oslo_service.service.launch")
        self.launch.return_value.wait.return_value = None
        conf_fixture.override(self, "enabled_backends", ["one"])
        self.patch("sys.argv", ["attachd-manager", "--config-file", "some.conf"])

    def patch(self, name, *args):
        return self.enterContext(mock.patch(name, *args))

    def refused(self):
        with mock.patch("sys.stderr", io.StringIO()) as errors:
            self.assertEqual(1, manager.main())
        self.launch.assert_not_called()
        self.assertEqual(1, errors.getvalue().count("\n"))
        return errors.getvalue()

    def test_manager_starts_configured_number_of_workers(self):
        conf_fixture.override(self, "workers", 3, group="manager")
        self.assertEqual(0, manager.main())
        self.prepare.assert_called_once_with(["--config-file", "some.conf"])
        self.launch.assert_called_once_with(CONF, mock.ANY, workers=3)
        self.assertIsInstance(self.launch.call_args.args[1], ManagerService)

    def test_manager_without_backends_is_refused(self):
        conf_fixture.override(self, "enabled_backends", [])
        self.assertIn("enabled_backends", self.refused())

    def test_backend_error_is_reported_before_workers_start(self):
        self.load.side_effect = exception.ConfigurationError(reason="[one] has no driver")
        self.assertEqual("attachd-manager: [one] has no driver\n", self.refused())

    def test_key_file_error_is_reported_before_workers_start(self):
        key_files.configure(self, Path("/nowhere/secrets.keys"))
        self.assertIn("[secrets] key_file: /nowhere/secrets.keys cannot be read", self.refused())

    def test_state_path_error_is_reported_before_workers_start(self):
        self.load.side_effect = PermissionError(13, "Permission denied", "/var/lib/attachd")
        self.assertIn("'/var/lib/attachd'", self.refused())
