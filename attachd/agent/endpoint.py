# SPDX-License-Identifier: Apache-2.0
"""What an agent answers to over RPC: the server half of agent_api."""

from collections.abc import Callable

import oslo_messaging as messaging

from attachd import exception
from attachd.context import RequestContext
from attachd.rpc import agent_api


class Endpoint:
    """The one call: to look.

    :param look: as Crew.look()
    """

    target = messaging.Target(version=agent_api.VERSION)

    def __init__(self, look: Callable[[str], None]) -> None:
        self._look = look

    def reconcile(self, _context: RequestContext, attachment_id: str) -> None:
        """See agent_api.reconcile(); what a host cannot do is an answer, and no accident."""
        try:
            self._look(attachment_id)
        except exception.AttachdError:
            raise messaging.ExpectedException from None
