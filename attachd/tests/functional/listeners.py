# SPDX-License-Identifier: Apache-2.0
"""Listens to notifications as stock consumers do, with oslo.messaging; for tests with a broker."""

import threading
from typing import Any
import unittest

from oslo_config import cfg
import oslo_messaging as messaging

from attachd import service
from attachd.tests.wait import TIMEOUT


class Listener:
    """Hears the topic ``notifications`` at one broker until the test is over."""

    def __init__(self, test: unittest.TestCase, broker: str) -> None:
        self._test = test
        self._heard: list[dict[str, Any]] = []
        self._news = threading.Condition()
        transport = messaging.get_notification_transport(cfg.CONF, url=broker)
        target = messaging.Target(topic="notifications", exchange=service.EXCHANGE)
        listener = messaging.get_notification_listener(
            transport, [target], [self], executor="threading"
        )
        listener.start()
        test.addCleanup(transport.cleanup)
        test.addCleanup(listener.wait)
        test.addCleanup(listener.stop)

    def _hear(
        self, _context: Any, publisher: str, kind: str, payload: Any, metadata: dict[str, Any]
    ) -> None:
        with self._news:
            self._heard.append(
                {"publisher": publisher, "kind": kind, "payload": payload, **metadata}
            )
            self._news.notify_all()

    info = warn = error = _hear

    def wait_for(self, kind: str) -> list[dict[str, Any]]:
        """Return all that was heard, in order, once something of a kind is among it."""
        with self._news:
            if not self._news.wait_for(lambda: kind in self.kinds(), TIMEOUT):
                self._test.fail(f"{kind} did not come, but {self.kinds()}")
            return list(self._heard)

    def kinds(self) -> list[str]:
        """Return the event types of all that was heard so far, in order."""
        return [each["kind"] for each in self._heard]
