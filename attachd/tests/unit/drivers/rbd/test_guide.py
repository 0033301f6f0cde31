# SPDX-License-Identifier: Apache-2.0
"""The capabilities of the manager's user, as the administration guide makes them."""

from pathlib import Path
import unittest

import attachd
from attachd.tests.fixtures import ceph, processes

GUIDE = Path(attachd.__file__).parents[1] / "doc/source/admin/rbd.rst"


class GuideTest(unittest.TestCase):
    def test_capabilities_of_guide_are_those_that_tests_run_with(self):
        if not GUIDE.is_file():
            self.skipTest("the documentation is not installed")
        text = GUIDE.read_text()
        typed = text[text.index("# caps=") : text.index("# ceph auth get-or-create")]
        lines = [line.strip().removeprefix("# ").removeprefix("> ") for line in typed.splitlines()]
        script = "\n".join([*lines, 'echo "$caps"'])
        caps = processes.check_output(["bash", "-c", script]).strip()
        self.assertEqual(sorted(ceph.MON_CAPS.split(", ")), sorted(caps.split(", ")))
        self.assertIn(f"osd '{ceph.OSD_CAPS}'", text)
