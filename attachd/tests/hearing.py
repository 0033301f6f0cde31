# SPDX-License-Identifier: Apache-2.0
"""Hears what is told in this process, for tests: oslo.messaging's driver ``test``."""

from typing import Any
import unittest

from oslo_messaging.notify import _impl_test

from attachd.notifications import sender
from attachd.tests import backends
from attachd.tests.wait import TIMEOUT


class Heard:
    """All notifications since :func:`use`."""

    def messages(self) -> list[dict[str, Any]]:
        """Return them, after all that was told has been sent."""
        sender.stop()
        return [message for _context, message, _priority, _retry in _impl_test.NOTIFICATIONS]

    def contexts(self) -> list[dict[str, Any]]:
        """Return whose requests they were."""
        sender.stop()
        return [context for context, _message, _priority, _retry in _impl_test.NOTIFICATIONS]

    def kinds(self) -> list[str]:
        """Return their event types, in order."""
        return [each["event_type"] for each in self.messages()]


def use(test: unittest.TestCase, *drivers: str) -> Heard:
    """Turn notifications on until the test is over."""
    sender.reset_after_fork()
    test.addCleanup(sender.reset_after_fork)
    test.addCleanup(sender.stop)
    sender.enabled()  # knows the option
    backends.override(test, "driver", list(drivers) or ["test"], sender.GROUP)
    backends.override(test, "transport_url", "inprocess://hearing", sender.GROUP)
    backends.override(test, "flush_timeout", TIMEOUT, "notifications")
    sender.enabled.cache_clear()
    _impl_test.reset()
    return Heard()
