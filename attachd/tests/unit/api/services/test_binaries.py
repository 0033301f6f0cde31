# SPDX-License-Identifier: Apache-2.0
"""Tests of the names of programs, and of the selection of managers."""

import unittest

from attachd.api.services import binaries
from attachd.db.cluster import services
from attachd.tests.fixtures import api_context


class NamesTest(unittest.TestCase):
    def test_program_has_cinder_name_on_wire(self):
        self.assertEqual("cinder-volume", binaries.to_wire(services.BINARY))
        self.assertEqual("attachd-agent", binaries.to_wire("attachd-agent"))

    def test_requests_accept_both_names(self):
        for name in (binaries.MANAGER, api_context.BINARY):
            self.assertEqual(services.BINARY, binaries.to_internal(name))
        self.assertEqual("nonsense", binaries.to_internal("nonsense"))

    def test_all_names_are_known(self):
        self.assertLessEqual({"cinder-volume", "attachd-manager", "cinder-api"}, set(binaries.ALL))


class ManagersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        api_context.report_backend("h@b")
        api_context.report_backend("i@a")
        api_context.report_backend("h@agent", binary="attachd-agent", report=None)

    def test_host_selects_its_backends_and_backend_itself(self):
        cases = {
            "h": ["h@a", "h@b"],
            "h@b": ["h@b"],
            "": ["h@a", "h@b", "i@a"],
            None: ["h@a", "h@b", "i@a"],
            "h@": [],
            "a": [],
            "h@a#pool": [],
            "h@agent": [],
        }
        for host, expected in cases.items():
            self.assertEqual(expected, [row["host"] for row in binaries.of_host(host)], host)
