# SPDX-License-Identifier: Apache-2.0
"""What is not here has an answer, and takes nobody else's URL."""

import unittest

from attachd import exception
from attachd.api import endpoint, unsupported


class AbsentTest(unittest.TestCase):
    def test_each_says_what_there_is_none_of(self):
        for each in unsupported.endpoints():
            with self.assertRaises(exception.ResourceUnsupported) as caught:
                each.handler()
            self.assertRegex(str(caught.exception), r"^This service has no [a-z ]+\.$")
            self.assertEqual(404, caught.exception.code)

    def test_nothing_that_is_here_is_below_them(self):
        for each in endpoint.load():
            self.assertFalse(each.path.startswith(tuple(unsupported.THINGS)), each.path)
