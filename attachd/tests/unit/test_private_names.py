# SPDX-License-Identifier: Apache-2.0
"""The private names of libraries that attachd uses, and what it expects of them.

``tools/code_figures.py --list private`` finds their uses; functional/test_code_figures.py compares
both.  Nothing of attachd is imported here: without the names it could not be.
"""

import importlib
import inspect
import unittest

USES = {
    "attachd/rpc/fair_dispatch.py": ("_executor_cls", "_poll_style_listener", "_consumers"),
    "attachd/rpc/transport.py": (
        "oslo_messaging._drivers.amqpdriver",
        "oslo_messaging._drivers.common",
    ),
}
"""The private names by the files that use them."""

EXPECTED = (
    (
        "oslo_messaging.server:MessageHandlingServer",
        "self._work_executor = self._executor_cls(**executor_opts)",
        "servers no longer make their executor of _executor_cls, which orders the calls",
    ),
    (
        "oslo_messaging.server:MessageHandlingServer",
        'executor_opts["max_workers"] =',
        "servers no longer make their executor of max_workers",
    ),
    (
        "oslo_messaging._drivers.base:PollStyleListenerAdapter",
        "self._poll_style_listener = poll_style_listener",
        "listeners no longer have a _poll_style_listener: a server that stops would lose calls",
    ),
    (
        "oslo_messaging._drivers.amqpdriver:AMQPListener",
        "self.conn = conn",
        "listeners no longer have a conn: a server that stops would lose calls",
    ),
    (
        "oslo_messaging._drivers.impl_rabbit:Connection",
        "self._consumers[consumer] = tag",
        "connections no longer have _consumers: a server that stops would lose calls",
    ),
    (
        "oslo_messaging._drivers.impl_rabbit:Consumer",
        "self.callback(RabbitMessage(message))",
        "consumers no longer call their callback: a server that stops would lose calls",
    ),
    (
        "oslo_messaging._drivers.amqpdriver:AMQPDriverBase",
        "self._waiter = ReplyWaiter(",
        "the reply queue is no longer read by a ReplyWaiter: it would log in without a pause",
    ),
    (
        "oslo_messaging._drivers.amqpdriver:ReplyWaiter",
        "self.conn.consume(timeout=current_timeout)",
        "a ReplyWaiter no longer calls consume(): it would log in without a pause",
    ),
    (
        "oslo_messaging._drivers.amqpdriver:ReplyWaiters",
        "self._wrn_threshold = 10",
        "oslo.messaging has no threshold that attachd could raise: it would warn of 11 calls",
    ),
    (
        "oslo_messaging._drivers.impl_rabbit:Connection",
        "raise rpc_common.Timeout()",
        "consume() no longer raises Timeout of _drivers.common when no message has arrived",
    ),
    (
        "oslo_messaging._drivers.amqpdriver:AMQPListener",
        "ACK_REQUEUE_EVERY_SECONDS_MIN",
        "listeners no longer poll each ACK_REQUEUE_EVERY_SECONDS_MIN: see _set_poll_interval()",
    ),
)
"""Classes, a part of their source, and what it means if that is missing."""


class PrivateNamesTest(unittest.TestCase):
    def test_oslo_messaging_still_has_the_private_names_that_attachd_uses(self):
        for place, part, otherwise in EXPECTED:
            with self.subTest(place):
                self.assertTrue(part in source(place), f"oslo.messaging has changed: {otherwise}")


def source(place):
    """Return the source of a class and its bases, "" if there is no such class."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return ""
    # attachd may have put a class of its own in the place of a base.
    kinds = [kind for kind in inspect.getmro(found) if kind is not object] if found else []
    return "".join(map(inspect.getsource, kinds))
