# SPDX-License-Identifier: Apache-2.0
"""Numbers of processes."""

import os
import shutil
import unittest

from attachd.telemetry import process_slots
from attachd.tests.functional import processes


class MineTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = processes.folder(self)

    def in_a_child(self, taken):
        """Return the number that a forked process gets."""
        out, into = os.pipe()
        child = os.fork()
        if not child:
            os.write(into, str(taken.mine()).encode())
            os._exit(0)
        os.close(into)
        with os.fdopen(out) as answer:
            number = int(answer.read())
        os.waitpid(child, 0)
        return number

    def test_a_process_keeps_its_number_and_others_get_another(self):
        taken = process_slots.Slots(self.folder)
        self.assertEqual([0, 0], [taken.mine(), taken.mine()])
        self.assertEqual(1, process_slots.Slots(self.folder).mine())

    def test_a_forked_one_gets_another_which_is_free_when_it_has_ended(self):
        taken = process_slots.Slots(self.folder)
        self.assertEqual(0, taken.mine())
        self.assertEqual([1, 1], [self.in_a_child(taken), self.in_a_child(taken)])
        self.assertEqual(0, taken.mine())

    def test_a_number_that_cannot_be_had_closes_the_file_of_the_former_one_once(self):
        taken = process_slots.Slots(self.folder)
        taken.mine()
        former = taken._file
        taken._owner = 0  # as in a forked process
        shutil.rmtree(self.folder)
        with self.assertRaises(FileNotFoundError):
            taken.mine()
        # Somebody else gets that descriptor: a connection to the database, perhaps.
        into, other = os.pipe()
        self.addCleanup(os.close, other)
        os.dup2(into, former)
        if into != former:
            os.close(into)
        with self.assertRaises(FileNotFoundError):
            taken.mine()
        os.fstat(former)
        os.close(former)
