# SPDX-License-Identifier: Apache-2.0
"""Stands in for a test, where what tests share is to go with the process instead of with one."""

import atexit
from collections.abc import Callable
from typing import Any, NoReturn
import unittest


class Lasting(unittest.TestCase):
    """Skips and fails for the test that asked first; cleans up when the process ends."""

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__()
        self._test = test

    def skipTest(self, reason: Any) -> NoReturn:  # noqa: N802 - unittest named it
        self._test.skipTest(reason)

    def fail(self, msg: Any = None) -> NoReturn:
        self._test.fail(msg)

    def addCleanup(  # noqa: N802 - unittest named it
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> None:
        atexit.register(function, *args, **kwargs)
