# SPDX-License-Identifier: Apache-2.0
"""Calls that tests make at the same moment."""

from collections.abc import Callable
from concurrent import futures
import threading
from typing import Any


def run_at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same moment, each in a thread; return results or exceptions."""
    start = threading.Barrier(len(functions), timeout=240)

    def call(function: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the test checks it
            return error

    with futures.ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))
