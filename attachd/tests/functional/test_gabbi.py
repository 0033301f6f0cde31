# SPDX-License-Identifier: Apache-2.0
"""Tests of the requests in gabbits/*.yaml.

Each file gets an API, a manager with the fake driver, and a database of its own.
"""

from pathlib import Path
from typing import Any
import unittest

from gabbi import driver

from attachd.tests.fixtures import wsgi_api

STORIES = Path(__file__).parent / "gabbits"


def load_tests(
    loader: unittest.TestLoader, _tests: unittest.TestSuite, _pattern: str | None
) -> Any:
    """Make a test of each request; unittest and stestr call this."""
    return driver.build_tests(
        str(STORIES),
        loader,
        intercept=wsgi_api.validated_application,
        fixture_module=wsgi_api,
        test_loader_name=__name__,
    )
