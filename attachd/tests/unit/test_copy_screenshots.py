# SPDX-License-Identifier: Apache-2.0
"""The copy of screenshots to the documentation."""

import unittest

from attachd.tests.fixtures import lifetime, requirements


class CopyTest(unittest.TestCase):
    def setUp(self):
        self.copy_screenshots = requirements.import_tool(self, "copy_screenshots")

    def test_page_gets_pictures_that_it_names(self):
        folder, doc = lifetime.temp_dir(self), lifetime.temp_dir(self)
        for name in ("a-wide-light.png", "b-wide-light.png"):
            (folder / name).write_bytes(name.encode())
        page = doc / "page.rst"
        page.write_text("Title\n\n.. figure:: status-page/a-wide-light.png\n   :alt: A.\n")
        copied = self.copy_screenshots.copy(folder, page)
        self.assertEqual(["status-page/a-wide-light.png"], copied)
        self.assertEqual(b"a-wide-light.png", (doc / copied[0]).read_bytes())
        self.assertEqual([doc / copied[0]], list((doc / "status-page").iterdir()))

    def test_documentation_has_each_picture_that_it_names(self):
        page = self.copy_screenshots.PAGE
        names = self.copy_screenshots.find_pictures(page.read_text(encoding="utf-8"))
        self.assertGreater(len(names), 2)
        self.assertEqual([], [name for name in names if not (page.parent / name).is_file()])
