# SPDX-License-Identifier: Apache-2.0
"""What is told of volumes that change without a manager."""

import unittest

from attachd import exception
from attachd.api.volumes import notify
from attachd.objects import Volume
from attachd.tests import asking, hearing, rows


class TellingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.heard = hearing.use(self)
        row = rows.add_volume(name="before")
        self.volume = Volume.get(asking.context(), row["id"])

    def test_it_is_told_as_it_was_and_as_it_is(self):
        with notify.change(self.volume, "update"):
            rows.change_volume(self.volume.id, name="after")
        told = [(each["event_type"], each["payload"]["display_name"])
                for each in self.heard.messages()]  # fmt: skip
        self.assertEqual([("volume.update.start", "before"), ("volume.update.end", "after")], told)

    def test_a_change_that_fails_has_no_end(self):
        with self.assertRaises(exception.BadRequest), notify.change(self.volume, "update"):
            raise exception.BadRequest(reason="no")
        self.assertEqual(["volume.update.start"], self.heard.kinds())

    def test_another_type_is_told_once_it_is_there(self):
        notify.retype(self.volume, "gold")
        (message,) = self.heard.messages()
        self.assertEqual("volume.retype", message["event_type"])
        self.assertEqual("gold", message["payload"]["volume_type"])
