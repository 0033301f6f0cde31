# SPDX-License-Identifier: Apache-2.0
"""The RPC server of the agent of a host, which checks whether requests reach it.

It sends probes to itself in the way that the API sends requests: to the exchange of the host, by
its topic.  If no queue takes them, exchange, queues and bindings are declared again.  If a queue
takes them and they do not arrive, a new consumer takes the place of the former one.
"""

from collections.abc import Callable
import functools
import threading
import time
from typing import Any, Final

from oslo_log import log as logging
import oslo_messaging as messaging

from attachd.rpc import admission, broker, path_check, received
from attachd.rpc.fair_dispatch import FairServer
from attachd.rpc.path_check import CheckedServer, ProbeLog
from attachd.rpc.receiver import Incoming, Queue, Receiver, ReceivingServer, SeenIds

LOG = logging.getLogger(__name__)

LOST_AFTER: Final = 10.0
"""Seconds after which a probe that a queue has taken counts as lost."""

REPORT_AFTER: Final = 15.0
"""Seconds without a probe that arrives after which the agent reports it as an error."""


_NO_ANSWER: Final = "the message queue does not answer"


class LocalServer(FairServer):
    """The server of an agent in one process with the API, without a broker."""

    def find_problem(self) -> str | None:
        """Return why requests do not reach the agent; None: nothing is known."""
        return None


class RequestServer(ReceivingServer):
    """Executes requests; its own probes wait for no thread.

    It has one queue, named after the host.  oslo.messaging would add one of the server, and one
    with a random name for messages to all servers, which nothing uses: the account of a host could
    not be limited to a few names then.

    :param probes: records the probes that arrive
    """

    def __init__(
        self,
        url: messaging.TransportURL,
        target: messaging.Target,
        dispatcher: Any,
        probes: ProbeLog,
    ) -> None:
        super().__init__(target.server, dispatcher)
        self._probes = probes
        self._seen = SeenIds()
        declare = functools.partial(
            broker.declare_topic, url, exchange=target.exchange, name=target.topic
        )
        self.receiver = Receiver(url, target.topic, [Queue(target.topic, declare, self._receive)])

    def _receive(self, message: Any) -> None:
        """Take a message of amqp."""
        message.channel.basic_ack(message.delivery_tag)
        try:
            content = admission.parse(message.body, message.properties, received.MAX_SIZE)
        except admission.Refused as error:
            LOG.warning("A request is dropped: its %s is not accepted", error.reason)
            return
        if content.get("method") == path_check.METHOD:
            self._probes.record(content.get("args"))
        elif isinstance(content.get("method"), str) and self._seen.add(content.get("_unique_id")):
            prefix = "_context_"
            context = {
                key.removeprefix(prefix): value
                for key, value in content.items()
                if key.startswith(prefix)
            }
            request = {key: value for key, value in content.items() if not key.startswith("_")}
            self.submit(Incoming(context, request, content.get("_reply_q")))


class HostServer(CheckedServer):
    """The server of an agent, which restores its path in the message queue."""

    def __init__(
        self,
        make: Callable[[], Any],
        rpc_transport: Any,
        target: messaging.Target,
        probes: ProbeLog,
        declare: Callable[[], object],
    ) -> None:
        super().__init__(make, rpc_transport, target, probes, declare)
        self._arrived_at = float("inf")
        self._rebuilt_at = float("-inf")
        self._reason = ""

    def find_problem(self) -> str | None:
        """Return why requests do not reach the agent; None: they do, or did until a moment ago."""
        if time.monotonic() - self._arrived_at < REPORT_AFTER:
            return None
        return f"Requests do not reach the agent, which works when it reports: {self._reason}."

    def start(self, override_pool_size: int | None = None) -> None:
        """Begin to receive, with so many threads."""
        self._arrived_at = time.monotonic()
        self._reason = _NO_ANSWER
        super().start(override_pool_size)

    def _send_probes(self, now: float) -> None:  # noqa: ARG002  as of the base class
        target = self._target(server=None)
        try:
            path_check.send_probe(self._transport, target, **self._probes.add())
        except path_check.PathCut as error:
            self._reason = str(error)
            raise
        except messaging.MessageDeliveryFailure:
            self._reason = _NO_ANSWER
            raise

    def _check_fanout(self) -> None:
        """Check that probes arrive; nothing sends to agents by fanout."""
        now = time.monotonic()
        self._arrived_at = max(self._arrived_at, self._probes.latest_received)
        if now - max(self._arrived_at, self._rebuilt_at, self._outage_at) < LOST_AFTER:
            return
        self._reason = (
            "a queue takes them, and they do not arrive; does another agent use the account of "
            "this host?"
        )
        self._rebuilt_at = now
        self._replace()
        self._record(self._reason)

    def _replace(self) -> None:
        """Start another server, and end the former one when it can be ended."""
        former, fresh = self._servers[0], self._make()
        fresh.start(override_pool_size=self._pool_size)
        with self._lock:
            if self._stopped:
                former = fresh
            else:
                self._servers = [fresh]
        threading.Thread(target=_end, args=(former,), daemon=True).start()


def _end(server: Any) -> None:
    try:
        server.stop()
        server.wait()
    except Exception:
        LOG.exception("A consumer that received nothing could not be ended")
