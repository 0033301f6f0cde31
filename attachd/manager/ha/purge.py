# SPDX-License-Identifier: Apache-2.0
"""Removes what has been kept for long enough; called by upkeep.py now and then."""

import datetime
from typing import Final

from oslo_log import log
from oslo_utils import timeutils

from attachd.conf import CONF
from attachd.db import events, idempotency_keys, messages

LOG = log.getLogger(__name__)

AT_ONCE: Final = 1000
"""How many events are removed in one transaction."""


def reap() -> None:
    """Remove old messages to users, keys of requests to the API, and events."""
    if gone := messages.reap():
        LOG.info("%d messages to users were old and are gone", gone)
    idempotency_keys.reap()
    old = timeutils.utcnow() - datetime.timedelta(seconds=CONF.events.retention)
    while gone := events.forget(old, AT_ONCE):
        LOG.info("%d events were old and are gone", gone)
