# SPDX-License-Identifier: Apache-2.0
"""The version documents, as they are described."""

import unittest

from attachd.api.openapi import version_documents


class PathsTest(unittest.TestCase):
    def test_nobody_needs_a_token(self):
        paths = version_documents.paths()
        self.assertEqual(["/", "/v3/"], list(paths))
        for each in paths.values():
            self.assertEqual([], each["get"]["security"])
