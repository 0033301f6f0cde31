# SPDX-License-Identifier: Apache-2.0
"""What an agent answers to over RPC: the server half of agentapi."""

from collections.abc import Callable

import oslo_messaging as messaging

from attachd import agentapi, exception
from attachd.context import RequestContext


class Endpoint:
    """The one call: to look.

    :param look: as Crew.look()
    """

    target = messaging.Target(version=agentapi.VERSION)

    def __init__(self, look: Callable[[str], None]) -> None:
        self._look = look

    def look(self, _context: RequestContext, attachment_id: str) -> None:
        """See agentapi.look(); what a host cannot do is an answer, and no accident."""
        try:
            self._look(attachment_id)
        except exception.AttachdError:
            raise messaging.ExpectedException from None
