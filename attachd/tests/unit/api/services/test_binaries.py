# SPDX-License-Identifier: Apache-2.0
"""The names of programs on the wire."""

import unittest

from attachd import scheduler
from attachd.api.services import binaries
from attachd.tests import asking


class NamesTest(unittest.TestCase):
    def test_a_program_is_shown_as_clients_know_it(self):
        self.assertEqual("cinder-volume", binaries.shown(scheduler.BINARY))
        self.assertEqual("attachd-agent", binaries.shown("attachd-agent"))

    def test_requests_may_give_either_name(self):
        for name in (binaries.MANAGER, asking.BINARY):
            self.assertEqual(scheduler.BINARY, binaries.own(name))
        self.assertEqual("nonsense", binaries.own("nonsense"))

    def test_every_name_is_known(self):
        self.assertLessEqual({"cinder-volume", "attachd-manager", "cinder-api"}, set(binaries.ALL))
