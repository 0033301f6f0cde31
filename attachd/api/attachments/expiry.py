# SPDX-License-Identifier: Apache-2.0
"""When a reservation ends that nobody connects; used by reservation.py.

The deployment says it for all, by [api]reservation_ttl; whoever reserves under attachd 1.0 can ask
for less.  Managers remove what has expired (manager/expiry.py).
"""

from collections.abc import Mapping
import datetime
from typing import Any, Final

from oslo_utils import timeutils

from attachd import exception
from attachd.conf import CONF

FIELD: Final = "expires_in"


def moment(
    wanted: Mapping[str, Any], ext_version: tuple[int, int] | None
) -> datetime.datetime | None:
    """Return when a new reservation ends; None: never.

    :param wanted: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the version of attachd's own API that is asked for
    :raises InvalidInput: it is to last longer than it may, or nothing may be said of it
    """
    most = CONF.api.reservation_ttl
    asked = wanted.get(FIELD)
    if FIELD in wanted and ext_version is None:
        raise _refused(asked, "It needs the header OpenStack-API-Version: attachd 1.0.")
    if asked is not None and wanted.get("connector"):
        raise _refused(asked, "What is connected at once does not expire: leave it out.")
    if asked is not None and 0 < most < asked:
        raise _refused(asked, f"Reservations last {most} seconds here, at most.")
    seconds = asked or most
    return timeutils.utcnow() + datetime.timedelta(seconds=seconds) if seconds else None


def _refused(asked: Any, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=f"attachment.{FIELD}", value=asked, reason=reason)
