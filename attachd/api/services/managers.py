# SPDX-License-Identifier: Apache-2.0
"""Which managers a request is about; used by the handlers of services and of left-over work."""

from collections.abc import Mapping
from typing import Any

from attachd import scheduler
from attachd.db import services

Row = Mapping[str, Any]


def at(host: str | None) -> list[services.Row]:
    """Return the services of managers at a host, or of one backend; all, without a host."""
    return [row for row in services.page({"binary": scheduler.BINARY}) if is_of(row, host)]


def is_of(row: Row, host: str | None) -> bool:
    """Tell whether a service is at a host, or is that backend; each is, of no host."""
    return not host or host in {row["host"], row["host"].partition("@")[0]}
