# SPDX-License-Identifier: Apache-2.0
"""Which error a caller gets if both quota and storage are exhausted."""

from collections.abc import Iterator
import contextlib

from attachd import exception
from attachd.db import quotas


@contextlib.contextmanager
def quota_error_first(project_id: str, claim: quotas.Deltas) -> Iterator[None]:
    """Prefer QuotaExceeded to NoValidBackend while a backend is selected.

    The quota itself is enforced later, when the volume is stored.

    :raises QuotaExceeded: no backend fits, and the project's quota is exceeded
    """
    try:
        yield
    except exception.NoValidBackend:
        quotas.check(project_id, claim)
        raise
