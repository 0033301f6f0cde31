# SPDX-License-Identifier: Apache-2.0
"""The limits of what tools/code_figures.py measures: functions of one request, private names.

The limits of sizes are in unit/test_house.py.
"""

import unittest

from attachd.tests.fixtures import requirements
from attachd.tests.selection import full_only
from attachd.tests.unit import test_private_names

MAX_REQUEST_FUNCTIONS = 406
MAX_REQUEST_LINES = 4010
"""How much a reader may have to read to follow an attach from the API to the backend."""


# Other threads of the process may enter a function while the request is traced.
@full_only("clients")
class RequestTest(unittest.TestCase):
    maxDiff = None

    def test_attach_with_connector_enters_limited_number_of_functions(self):
        functions, _moves = requirements.import_tool(self, "code_figures").traced_request()
        names = {function.name for function in functions}
        self.assertLessEqual({"get_or_create", "run_attach_flow", "FakeDriver.grant"}, names)
        self.assertLessEqual(len(functions), MAX_REQUEST_FUNCTIONS)
        self.assertLessEqual(sum(entered.lines for entered in functions), MAX_REQUEST_LINES)


@full_only("clients")
class PrivateNamesTest(unittest.TestCase):
    maxDiff = None

    def test_private_names_of_libraries_are_those_that_a_test_pins(self):
        found: dict[str, list[str]] = {}
        for line in requirements.import_tool(self, "code_figures").private_names():
            path, _number, use = line.split(":", 2)
            found.setdefault(path, []).append(use)
        self.assertEqual(sorted(test_private_names.USES), sorted(found))
        for path, names in test_private_names.USES.items():
            self.assertEqual(len(names), len(found[path]), found[path])
            for name in names:
                self.assertTrue(any(name in use for use in found[path]), (name, found[path]))
