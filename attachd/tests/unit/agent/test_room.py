# SPDX-License-Identifier: Apache-2.0
"""Some have a place, others wait, and who stays for too long is named."""

import contextlib
import threading
import unittest
from unittest import mock

from attachd.agent import room
from attachd.tests.wait import TIMEOUT


class RoomTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = 1000.0
        patched = mock.patch.object(room, "monotonic", lambda: self.clock)
        patched.start()
        self.addCleanup(patched.stop)
        self.room = room.Room(2)

    def hanging(self, seconds=60):
        return [each.attachment_id for each in self.room.hanging(seconds)]

    def test_who_stays_for_long_hangs_until_they_go(self):
        with self.room.entered("a"):
            self.clock += 50
            with self.room.entered("b"):
                self.assertEqual([], self.hanging())
                self.clock += 50
                self.assertEqual(["a"], self.hanging())
                self.clock += 50
                self.assertEqual(["a", "b"], self.hanging())
            self.assertEqual(["a"], self.hanging())
        self.assertEqual([], self.hanging())

    def test_who_fails_goes_too(self):
        with contextlib.suppress(ZeroDivisionError), self.room.entered("a"):
            raise ZeroDivisionError
        self.clock += 100
        self.assertEqual([], self.hanging())

    def test_who_waits_for_a_place_does_not_hang(self):
        entered = threading.Event()

        def enter():
            with self.room.entered("c"):
                entered.set()

        with contextlib.ExitStack() as inside:
            inside.enter_context(self.room.entered("a"))
            inside.enter_context(self.room.entered("b"))
            waiting = threading.Thread(target=enter)
            waiting.start()
            self.addCleanup(waiting.join, TIMEOUT)
            self.clock += 100
            self.assertEqual(["a", "b"], self.hanging())
            self.assertFalse(entered.is_set())
        self.assertTrue(entered.wait(TIMEOUT))

    def test_what_is_told_names_some_and_counts_the_others(self):
        many = room.Room(20)
        with contextlib.ExitStack() as inside:
            for number in range(12):
                inside.enter_context(many.entered(f"id-{number}"))
            self.clock += 100
            said = many.told(many.hanging(60))
        self.assertIn("12 of 20 places", said)
        self.assertRegex(said, r"id-0 \(since \d{4}-\d\d-\d\d \d\d:\d\d UTC\), id-1 ")
        self.assertIn(" and 2 more.", said)
        self.assertNotIn("id-10", said)

    def test_a_host_with_trouble_of_its_own_tells_that(self):
        well = {
            "connector": {"host": "n"},
            "devices": [],
            "connector_type": "w",
            "version": "1",
            "error": None,
        }
        self.assertEqual(well, self.room.warn(well, 60))
        with self.room.entered("a"):
            self.clock += 100
            with self.assertLogs(room.LOG.logger, "WARNING") as logged:
                warned = [self.room.warn(well, 60) for _ in range(2)]
                ill = {**well, "error": "No iscsid."}
                self.assertEqual(ill, self.room.warn(ill, 60))
        self.assertEqual(1, len(logged.output))
        self.assertEqual([{"host": "n"}] * 2, [each["connector"] for each in warned])
        self.assertRegex(warned[1]["error"], "^1 of 2 places for work hang")
