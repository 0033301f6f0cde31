# SPDX-License-Identifier: Apache-2.0
"""The limit of the files through which one request runs, measured as tools/code_figures.py does.

The limits of sizes are in unit/test_house.py.
"""

import unittest

from attachd.tests.fixtures import requirements
from attachd.tests.selection import full_only

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
