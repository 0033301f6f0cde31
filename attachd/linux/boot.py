# SPDX-License-Identifier: Apache-2.0
"""The start of the machine: which one it is, and the time since then.

Source: random(4), clock_gettime(2).
"""

from pathlib import Path
import time
from typing import Final

ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


def read_id() -> str:
    """Return the boot id: the kernel draws another one at each start."""
    return ID_FILE.read_text(encoding="ascii").strip()


def boot_clock() -> float:
    """Return seconds of a clock that is never set, and goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
