# SPDX-License-Identifier: Apache-2.0
"""The limits of what tools/code_figures.py measures: files of one request, private names.

The limits of sizes are in unit/test_house.py.
"""

import unittest

from attachd.tests.fixtures import requirements
from attachd.tests.selection import full_only
from attachd.tests.unit import test_private_names

MAX_REQUEST_FILES = 54
"""How many files a reader may have to know to follow an attach from the API to the backend."""


# Other threads of the process may enter a file while the request is traced.
@full_only("clients")
class RequestFilesTest(unittest.TestCase):
    maxDiff = None

    def test_attach_with_connector_enters_limited_number_of_files(self):
        files = requirements.import_tool(self, "code_figures").request_files()
        names = {line.partition(":")[0] for line in files}
        steps = {"api/attachments/handlers.py", "manager/attach.py", "drivers/fake.py"}
        self.assertLessEqual({f"attachd/{step}" for step in steps}, names)
        self.assertLessEqual(len(files), MAX_REQUEST_FILES, "\n".join(files))


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
