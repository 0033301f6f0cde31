# SPDX-License-Identifier: Apache-2.0
"""RPC servers that check whether messages reach them, and restore what is missing in the broker.

An account of the message queue may delete an exchange, a queue or a binding while all connections
stay open.  Messages then have no receiver, and oslo.messaging declares exchanges and bindings only
when it connects.  So each server sends probes to itself, the way that calls take.  If no queue
takes them, everything is declared again, by a connection that receives nothing.
"""

from collections.abc import Callable, Iterator
import contextlib
import itertools
import threading
import time
from typing import Any, Final
import uuid

from kombu import exceptions as kombu_exceptions
from oslo_log import log as logging
import oslo_messaging as messaging

from attachd.periodics import PeriodicThread
from attachd.telemetry import metrics

LOG = logging.getLogger(__name__)

METHOD: Final = "path_probe_ignore_errors"
"""Name of the messages.  With this ending oslo.messaging logs no error for an unknown method, so a
process of another release ignores them."""

INTERVAL = 4.0
"""Seconds between two checks of a server."""

CONFIRM_AFTER = 2.0
"""Seconds until the check of a path that was cut is repeated.  oslo.messaging itself declares a
deleted queue again within a second."""

SETTLE_TIME = 15.0
"""Seconds after an outage in which nothing is restored: a listener connects within
[oslo_messaging_rabbit]rabbit_interval_max, and declares everything itself."""

FANOUT_INTERVAL = 30.0
"""Seconds between two probes of the fanout exchange, which reach all servers of a topic."""

FANOUT_TIMEOUT = 2.0
"""A probe by fanout is lost if one that was sent this many seconds later has arrived."""

MAX_FANOUT_RESTORED = 8
"""How often a server restores its fanout queue: each time it keeps another connection."""

RETRIES = 1
"""Number of retries of a probe that the message queue did not accept."""

_CUT: Final = {
    404: "the exchange is missing",
    406: "the exchange has another type, or other properties; delete it",
}
"""Errors of AMQP for a message to an exchange, by their codes."""


class PathCut(Exception):
    """An exchange, a queue or a binding is missing in the message queue."""


def send_probe(rpc_transport: Any, target: messaging.Target, **arguments: Any) -> None:
    """Send a message that its receiver ignores.

    :raises PathCut: no queue takes it
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    client = messaging.get_rpc_client(
        rpc_transport,
        target,
        retry=RETRIES,
        transport_options=messaging.TransportOptions(at_least_once=True),
    )
    with path_errors():
        client.cast({}, METHOD, **arguments)


@contextlib.contextmanager
def path_errors() -> Iterator[None]:
    """Raise PathCut for what is missing in the message queue, else MessageDeliveryFailure."""
    try:
        yield
    except messaging.MessageUndeliverable as error:
        raise PathCut("no queue takes messages") from error
    except messaging.MessageDeliveryFailure as error:
        code = getattr(error.__context__, "code", None)
        if code in _CUT:
            raise PathCut(_CUT[code]) from error
        raise
    except kombu_exceptions.OperationalError as error:
        raise messaging.MessageDeliveryFailure(str(error)) from error


class ProbeLog:
    """The probes of one server: a number for each, and whether fanout probes arrive.

    All servers of a topic get the fanout probes of all of them, and servers with the same name
    share a queue, so a probe has an id of its sender.  A server processes messages in order: if a
    later probe has arrived, an earlier one by fanout is not only delayed by a busy server.
    """

    def __init__(self) -> None:
        self.sender = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._sent: dict[int, float] = {}
        self._fanout: int | None = None
        self._latest_received = 0.0

    @property
    def latest_received(self) -> float:
        """When the latest of the probes that have arrived was sent, on the monotonic clock."""
        return self._latest_received

    def add(self) -> dict[str, Any]:
        """Return the arguments of the next probe."""
        with self._lock:
            number = next(self._numbers)
            self._sent[number] = time.monotonic()
            self._sent.pop(number - 1000, None)  # servers with the same name get some of them
            return {"sender": self.sender, "number": number}

    def add_fanout(self) -> dict[str, Any]:
        """Return the arguments of the next probe by fanout."""
        arguments = self.add()
        with self._lock:
            self._fanout = arguments["number"]
        return arguments

    def record(self, arguments: Any) -> None:
        """Record that a probe has arrived; any account of the message queue can send one."""
        if not isinstance(arguments, dict) or arguments.get("sender") != self.sender:
            return
        number = arguments.get("number")
        with self._lock:
            sent = self._sent.pop(number, None) if isinstance(number, int) else None
            if sent is None:
                return
            if number == self._fanout:
                self._fanout = None
            self._latest_received = max(self._latest_received, sent)

    def has_fanout_arrived(self) -> bool:
        """Return whether no probe by fanout is under way."""
        with self._lock:
            return self._fanout is None

    def is_fanout_lost(self) -> bool:
        """Return whether the last probe by fanout has not arrived, and a later one has."""
        with self._lock:
            sent = self._sent.get(self._fanout) if self._fanout is not None else None
            return sent is not None and self._latest_received >= sent + FANOUT_TIMEOUT

    def discard_fanout(self) -> None:
        """Do not wait for the last probe by fanout any more."""
        with self._lock:
            self._fanout = None


class AnsweringProbeLog(ProbeLog):
    """The probes of one server, which answers those of others.

    :param answer: takes the time at which a probe was sent, as text, and whether it came by the
        common queue
    """

    def __init__(self, answer: Callable[[str, bool], object]) -> None:
        super().__init__()
        self._answer = answer

    def record(self, arguments: Any) -> None:
        """Record that a probe has arrived, and answer it."""
        super().record(arguments)
        sent_at = arguments.get("sent_at") if isinstance(arguments, dict) else None
        if isinstance(sent_at, str):
            self._answer(sent_at, arguments.get("by_queue") is True)


class CheckedServer:
    """An RPC server that restores its exchange, queues and bindings.

    :param make: returns a new RPC server for the target, not yet started
    :param rpc_transport: of the server
    :param target: exchange, topic and server name
    :param probes: the dispatcher of the server records there what arrives
    :param declare: declares exchange, queues and bindings, and receives nothing
    """

    def __init__(
        self,
        make: Callable[[], Any],
        rpc_transport: Any,
        target: messaging.Target,
        probes: ProbeLog,
        declare: Callable[[], object],
    ) -> None:
        self._declare = declare
        self._make = make
        self._servers = [make()]
        self._transport = rpc_transport
        self._target = target
        self._probes = probes
        self._pool_size: int | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._cut_since: float | None = None
        self._outage_at = float("-inf")
        self._fanout_sent_at = float("-inf")
        self._fanout_losses = 0
        self._failure = ""
        self._thread = PeriodicThread(
            f"path-check-{self.name}", self.check, self._interval, self._log_failure
        )

    @property
    def name(self) -> str:
        """The name of the queue."""
        return f"{self._target.topic}.{self._target.server}"

    @property
    def consumers(self) -> int:
        """How many consumers of each queue it has."""
        return len(self._servers)

    def execute(self, function: Callable[[], object]) -> None:
        """Execute a function in a thread of the server, before the messages that wait."""
        self._servers[0].execute(function)

    def start(self, override_pool_size: int | None = None) -> None:
        """Begin to receive, with so many threads; return when everything is declared."""
        self._pool_size = override_pool_size
        metrics.count(metrics.PATHS_RESTORED, self.name, by=0)
        self._servers[0].start(override_pool_size=override_pool_size)
        self._thread.start()

    def stop(self) -> None:
        """Receive no more messages."""
        self._thread.stop()
        with self._lock:
            self._stopped = True
        for server in self._servers:
            server.stop()

    def wait(self) -> None:
        """Wait until all received messages are processed."""
        for server in self._servers:
            server.wait()

    def check(self) -> None:
        """Send probes; restore the path if it is cut now, and was so a moment before.

        A listener without a connection connects again, and declares everything itself.  That is
        so after an outage, which the sender of probes may notice earlier or later.
        """
        now = time.monotonic()
        try:
            self._send_probes(now)
        except PathCut as error:
            if self._cut_since is None:
                self._cut_since = now
            if now - self._cut_since >= CONFIRM_AFTER and self._has_settled():
                self._declare()
                self._record(str(error))
        except messaging.MessageDeliveryFailure:
            self._outage_at = time.monotonic()
            self._reset()
        else:
            self._cut_since = None
            self._failure = ""
            self._check_fanout()

    def _send_probes(self, now: float) -> None:
        for target in (self._target, self._target(server=None)):
            send_probe(self._transport, target, **self._probes.add())
        if now - self._fanout_sent_at >= FANOUT_INTERVAL:
            target = self._target(server=None, fanout=True)
            send_probe(self._transport, target, **self._probes.add_fanout())
            self._fanout_sent_at = now

    def _check_fanout(self) -> None:
        if self._probes.has_fanout_arrived():
            self._fanout_losses = 0
        if not self._probes.is_fanout_lost():
            return
        self._probes.discard_fanout()
        self._fanout_sent_at = float("-inf")
        self._fanout_losses += 1
        if self._fanout_losses > 1 and self._has_settled():
            self._add_server()
            self._record("messages to all servers do not arrive")

    def _has_settled(self) -> bool:
        return time.monotonic() - self._outage_at >= SETTLE_TIME

    def _add_server(self) -> None:
        """Start another server, with a fanout queue of its own, and keep the former ones.

        The name of a fanout queue is random, so no other connection can bind it again.
        """
        if len(self._servers) > MAX_FANOUT_RESTORED:
            raise PathCut(f"fanout was restored {MAX_FANOUT_RESTORED} times; restart the process")
        fresh = self._make()
        fresh.start(override_pool_size=self._pool_size)
        with self._lock:
            if not self._stopped:
                self._servers.append(fresh)
                return
        fresh.stop()
        fresh.wait()

    def _record(self, reason: str) -> None:
        self._reset()
        metrics.count(metrics.PATHS_RESTORED, self.name)
        LOG.warning(
            "RPC server %s: %s. Exchange, queues and bindings are declared again.",
            self.name,
            reason,
        )

    def _reset(self) -> None:
        self._cut_since = None
        self._fanout_losses = 0
        self._fanout_sent_at = float("-inf")
        self._probes.discard_fanout()

    def _interval(self) -> float:
        return INTERVAL if self._cut_since is None else CONFIRM_AFTER

    def _log_failure(self, error: Exception) -> None:
        """Log why the path cannot be restored, once per reason."""
        reason = f"{type(error).__name__}: {error}"
        if reason != self._failure:
            self._failure = reason
            LOG.error("RPC server %s: its path cannot be restored: %s", self.name, reason)
