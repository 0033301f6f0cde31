# SPDX-License-Identifier: Apache-2.0
"""Staging and target paths that callers may name."""

import os
from pathlib import Path

from attachd.platforms.calls import CallError, ErrorCode


class PathRules:
    """Which paths are permitted.

    :param directory: they are below it; None: anywhere
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def check(self, field: str, path: str) -> None:
        """Check the path of a field.

        What links in it lead to counts, except for its last name, which has to be no link.

        :raises CallError: INVALID_ARGUMENT
        """
        if not path.startswith("/") or {"..", "."}.intersection(path.split("/")):
            raise _refuse(field, f"is no absolute path without '..': {path}")
        if self._directory is None:
            return
        place = Path(os.path.realpath(Path(path).parent))
        if not place.is_relative_to(os.path.realpath(self._directory)):
            raise _refuse(field, f"is not below {self._directory}: {path}")


def _refuse(field: str, reason: str) -> CallError:
    return CallError(ErrorCode.INVALID_ARGUMENT, f"The field {field} {reason}.")
