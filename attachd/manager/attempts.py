# SPDX-License-Identifier: Apache-2.0
"""One piece of recovery or healing, and what comes of it; for recovery.py and healing.py."""

from collections.abc import Callable

from oslo_log import log

from attachd import exception

LOG = log.getLogger(__name__)


def attempt(row_id: str, work: Callable[[], object]) -> bool:
    """Tell whether a row needs no more work; its trouble must not keep the others from theirs."""
    try:
        work()
    except (exception.NotFound, exception.InvalidTransition):
        LOG.info("%s is gone or in other hands, nothing to recover", row_id)
    except (exception.ConnectFailed, exception.DisconnectFailed) as error:
        LOG.warning("What was begun has failed: %s", error)
    except exception.AttachdError as error:
        LOG.warning("%s could not be recovered now: %s", row_id, error)
        return False
    except Exception:
        LOG.exception("%s could not be recovered now", row_id)
        return False
    else:
        LOG.info("%s was recovered", row_id)
    return True
