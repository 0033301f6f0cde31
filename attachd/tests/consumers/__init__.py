# SPDX-License-Identifier: Apache-2.0
"""Other projects' own tests and modules, run against attachd with a real Keystone.

``python -m attachd.tests.consumers --help`` explains how to run some of them.
"""

from typing import Any
import unittest


def load_tests(_loader: Any, _tests: Any, _pattern: Any) -> unittest.TestSuite:
    """Keep this folder out of discovery: its tests need other projects, and their own runner."""
    return unittest.TestSuite()
