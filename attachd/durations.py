# SPDX-License-Identifier: Apache-2.0
"""Durations as users type them, such as 2h; for the commands."""

import argparse
import datetime
import re
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGE: Final = re.compile(r"([0-9]{1,5})([smhd])", re.ASCII)


def age(text: str) -> datetime.timedelta:
    """Parse a duration, such as 90s, 30m, 2h or 7d; a type for argparse."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, such as 90s, 30m, 2h or 7d")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})
