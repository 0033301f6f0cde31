# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from attachd.docker_volume import start


class StartTest(unittest.TestCase):
    def test_start_runs_command_of_extra(self):
        with mock.patch("attachd.platforms.extra.run", return_value=1) as run:
            self.assertEqual(1, start.main())
        module = "attachd.docker_volume.command"
        run.assert_called_once_with("attachd-docker-volume", module, "host", start.NEEDED)
