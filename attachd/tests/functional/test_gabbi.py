# SPDX-License-Identifier: Apache-2.0
"""The stories in gabbits/*.yaml: each request and its answer, read from top to bottom.

A story gets an API, a manager with the fake driver, and a database of its own.
"""

from pathlib import Path
from typing import Any
import unittest

from gabbi import driver

from attachd.tests.functional import served

STORIES = Path(__file__).parent / "gabbits"


def load_tests(
    loader: unittest.TestLoader, _tests: unittest.TestSuite, _pattern: str | None
) -> Any:
    """Make a test of each request; unittest and stestr call this."""
    return driver.build_tests(
        str(STORIES),
        loader,
        intercept=served.application,
        fixture_module=served,
        test_loader_name=__name__,
    )
