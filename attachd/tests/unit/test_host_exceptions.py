# SPDX-License-Identifier: Apache-2.0
"""The errors of a host."""

import inspect
import unittest

from attachd import exception, host_exceptions


class HostErrorsTest(unittest.TestCase):
    """Nobody has to know that they have a file of their own."""

    def test_others_find_all_of_them_among_the_errors(self):
        ours = dict(inspect.getmembers(host_exceptions, inspect.isclass))
        self.assertIn("HostLacks", ours)
        for name, kind in ours.items():
            self.assertIs(kind, getattr(exception, name, None), name)
