# SPDX-License-Identifier: Apache-2.0
"""Tells users of their quota before it tells of the storage's; used by volumes and actions."""

from collections.abc import Iterator
import contextlib

from attachd import exception
from attachd.db import quota_claims


@contextlib.contextmanager
def quota_error_first(project_id: str, claim: quota_claims.Claim) -> Iterator[None]:
    """Look for a place, where a project that may not have as much is told that instead.

    Whether a project may have it is decided later, where it is stored.

    :raises QuotaExceeded: there is no place, and the project may not have it
    """
    try:
        yield
    except exception.NoValidBackend:
        quota_claims.check(project_id, claim)
        raise
