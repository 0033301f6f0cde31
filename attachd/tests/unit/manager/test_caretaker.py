# SPDX-License-Identifier: Apache-2.0
"""The rounds of a backend's care: what it recovers."""

import datetime
import unittest
from unittest import mock

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.db import models
from attachd.manager.caretaker import Caretaker
from attachd.manager.ha import recovery
from attachd.manager.retries import FIRST_PAUSE
from attachd.tests import backends, rows


class CaretakerTest(unittest.TestCase):
    """One round after the other."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.caretaker = Caretaker(self.backend)

    def test_rows_are_recovered_once_and_again_after_the_backend_was_down(self):
        with mock.patch.object(recovery, "resume", return_value=0) as resume:
            self.caretaker.once()
            self.caretaker.once()
            self.assertEqual(1, resume.call_count)
            self.backend.error = "down"
            self.caretaker.once()
            self.assertEqual(1, resume.call_count, "nothing can be done while it is down")
            self.backend.error = None
            self.caretaker.once()
            self.assertEqual(2, resume.call_count)

    def test_what_a_dead_manager_left_is_recovered_by_the_first_round(self):
        mine = rows.add_attachment(rows.add_volume()["id"], "connecting")["id"]
        self.caretaker.once()
        self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_what_could_not_be_recovered_is_tried_again_when_it_is_due(self):
        mine = rows.add_attachment(rows.add_volume()["id"], "connecting")["id"]
        gone = exception.Unavailable(reason="The database does not answer.")
        clock = self.enterContext(mock.patch("attachd.manager.retries.time"))
        clock.monotonic.return_value = 1000.0
        with mock.patch.object(attachments_db, "move", side_effect=gone):
            self.caretaker.once()
        self.caretaker.once()
        self.assertEqual("connecting", rows.attachment(mine)["state"])
        clock.monotonic.return_value += FIRST_PAUSE
        self.caretaker.once()
        self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_a_lease_that_was_left_over_is_free_also_while_the_backend_is_down(self):
        mine = rows.add_volume(lease_holder=self.backend.presence.id)["id"]
        self.backend.error = "down"
        self.caretaker.once()
        self.assertIsNone(rows.volume(mine)["lease_holder"])

    def test_what_had_failed_is_tried_at_once_when_the_backend_comes_back(self):
        mine = rows.add_attachment(rows.add_volume()["id"], "connecting")["id"]
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(attachments_db, "move", side_effect=gone):
            self.caretaker.once()
        for error in ("down", None):
            self.backend.error = error
            self.caretaker.once()
        self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_what_was_forgotten_later_is_picked_up(self):
        self.caretaker.once()
        long_ago = models.now() - datetime.timedelta(days=1)
        mine = rows.add_volume("creating", owner=backends.HOST, created_at=long_ago)
        self.caretaker.once()
        self.assertEqual("available", rows.volume(mine["id"])["status"])

    def test_all_rows_are_looked_at_again_after_a_failing_round(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with (
            mock.patch.object(recovery, "resume", return_value=0) as resume,
            mock.patch.object(recovery, "pick_up", side_effect=gone),
        ):
            for _ in range(2):
                stop = mock.Mock(is_set=mock.Mock(side_effect=[False, False, True]))
                self.caretaker.wake()
                with mock.patch.object(self.caretaker, "_wake"):
                    self.caretaker.run(stop)
        self.assertEqual(2, resume.call_count)
