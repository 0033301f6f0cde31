# SPDX-License-Identifier: Apache-2.0
"""What the errors have in common."""

import unittest

from attachd import exception, exception_roots


class RootsTest(unittest.TestCase):
    """By whichever name they are known, they are the same classes."""

    def test_others_find_them_among_the_errors(self):
        for name in ("AttachdError", "BadRequest", "Conflict", "NotFound"):
            self.assertIs(getattr(exception_roots, name), getattr(exception, name))

    def test_a_message_is_made_of_the_details_which_are_kept(self):
        error = exception_roots.Conflict(reason="It is busy.")
        self.assertEqual("It is busy.", str(error))
        self.assertEqual({"reason": "It is busy."}, error.details)
