# SPDX-License-Identifier: Apache-2.0
"""Wait for what other threads and processes do.

The limits are generous on purpose: a test ends as soon as its condition is met, and only a hang
reaches a limit, however slow the machine is.
"""

from collections.abc import Callable
import time
from typing import TypeVar

Value = TypeVar("Value")

TIMEOUT = 300.0
"""Seconds to wait for what surely happens unless something hangs."""

INTERVAL = 0.02
"""Seconds between two checks of a condition; no result depends on it."""


def wait_until(
    condition: Callable[[], Value],
    message: str | Callable[[], object] = "",
    *,
    timeout: float = TIMEOUT,
    interval: float = INTERVAL,
) -> Value:
    """Return the first true value of ``condition``.

    :param message: the expected condition, or a function that describes its progress
    :param timeout: in seconds
    :param interval: seconds between two checks
    :raises AssertionError: it is still false after ``timeout`` seconds
    """
    value = poll(condition, bool, timeout=timeout, interval=interval)
    if not value:
        reason = message() if callable(message) else message
        raise AssertionError(f"Still not true after {timeout:g} s: {reason or condition}")
    return value


def wait_for(
    get: Callable[[], Value], is_expected: Callable[[Value], object], message: str = ""
) -> Value:
    """Return the first value of ``get`` that is expected.

    :raises AssertionError: none is after ``TIMEOUT`` seconds
    """
    value = poll(get, is_expected)
    if not is_expected(value):
        raise AssertionError(f"Not as expected after {TIMEOUT:g} s: {message} {value}")
    return value


def poll(
    get: Callable[[], Value],
    is_expected: Callable[[Value], object],
    *,
    timeout: float = TIMEOUT,
    interval: float = INTERVAL,
) -> Value:
    """Return the first value of ``get`` that is expected, or the last one that is not."""
    deadline = time.monotonic() + timeout
    while not is_expected(value := get()) and time.monotonic() < deadline:
        time.sleep(interval)  # the only way to wait for another process is to ask it again
    return value
