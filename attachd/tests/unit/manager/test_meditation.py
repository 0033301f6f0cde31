# SPDX-License-Identifier: Apache-2.0
"""What a manager tells of itself."""

import unittest
from unittest import mock

from attachd.manager import meditation
import attachd.telemetry.gmr
from attachd.tests import backends, rows


class LinesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        begin = self.enterContext(mock.patch.object(attachd.telemetry.gmr, "begin"))
        tell = self.enterContext(mock.patch.object(attachd.telemetry.gmr, "tell"))
        meditation.begin([self.backend])
        begin.assert_called_once_with("attachd-manager")
        self.told = {call.args[0]: call.args[1] for call in tell.call_args_list}

    def test_it_tells_how_backends_are_and_no_reason(self):
        (line,) = self.told["Backends"]()
        self.assertIn("here@fake (RecordingDriver): ready", line)
        self.backend.error = "The password is 1234."
        (line,) = self.told["Backends"]()
        self.assertIn("down", line)
        self.assertNotIn("1234", line)

    def test_it_tells_who_works_on_volumes(self):
        self.assertEqual([], self.told["Turns of volumes"]())
        volume_id = rows.add_volume()["id"]
        with self.backend.lock(volume_id):
            (line,) = self.told["Turns of volumes"]()
        self.assertEqual(f"attachd-volume-{volume_id}: one at work, 0 behind it", line)

    def test_it_tells_of_connections_to_the_database(self):
        rows.add_volume()
        self.assertRegex("\n".join(self.told["Database"]()), "reading: .*\nwriting: ")
