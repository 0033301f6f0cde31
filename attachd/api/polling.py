# SPDX-License-Identifier: Apache-2.0
"""Wait for work that managers and agents do after a message, by reading its result again."""

from collections.abc import Callable
from typing import Final

import tenacity

_WAIT: Final = tenacity.wait_exponential(multiplier=0.025, max=0.5)
"""Seconds between two reads."""


def wait_while(is_at_work: Callable[[], bool], timeout: float) -> bool:
    """Call a function until it returns False; return whether it did in time.

    :param timeout: in seconds
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        wait=_WAIT,
        stop=tenacity.stop_after_delay(timeout),
        retry_error_callback=lambda _state: True,
    )
    return not retrying(is_at_work)
