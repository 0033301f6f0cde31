# SPDX-License-Identifier: Apache-2.0
"""A test case with an empty register of endpoints; for tests that declare some of their own."""

import unittest
from unittest import mock

from attachd.api import endpoint


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        endpoint.load()  # so that nothing is declared later by an import
        self.enterContext(mock.patch.object(endpoint, "REGISTER", []))
