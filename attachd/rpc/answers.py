# SPDX-License-Identifier: Apache-2.0
"""Answers to calls: their form, which is that of oslo.messaging, and their way."""

from collections.abc import Collection
import json
import sys
import threading
import time
import traceback
from typing import Any, Final
import uuid

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
import cachetools
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_serialization import jsonutils

from attachd.rpc import broker

LOG = logging.getLogger(__name__)

PAUSE: Final = 0.25
"""Seconds between two attempts to send an answer."""

MAX_MISSING: Final = 200
MISSING_TTL: Final = 60.0
"""How many reply queues are known to be missing, and for how many seconds."""


def pack(message_id: str | None, reply: Any, failure: Any) -> dict[str, Any]:
    """Return an answer.

    :param reply: the result
    :param failure: of sys.exc_info(); None: the call has succeeded
    """
    return {
        "result": reply,
        "failure": _describe(failure) if failure else None,
        "ending": True,
        "_msg_id": message_id,
        "_unique_id": uuid.uuid4().hex,
    }


def unpack(content: dict[str, Any], allowed_modules: Collection[str]) -> Any:
    """Return the result of an answer, or raise its error.

    :param allowed_modules: whose errors are raised as they were, beside those of Python
    :raises RemoteError: any other error
    """
    if failure := content.get("failure"):
        raise _rebuild(json.loads(failure), allowed_modules)
    return content.get("result")


def _describe(failure: Any) -> str:
    error = failure[1]
    described: str = jsonutils.dumps(
        {
            "class": type(error).__name__,
            "module": type(error).__module__,
            "message": str(error),
            "tb": traceback.format_exception(*failure),
            "args": error.args,
            "kwargs": getattr(error, "kwargs", {}),
        }
    )
    return described


def _rebuild(failure: dict[str, Any], allowed_modules: Collection[str]) -> Exception:
    name, lines = failure.get("module"), failure.get("tb", [])
    remote: Exception = messaging.RemoteError(failure.get("class"), failure.get("message"), lines)
    module = sys.modules.get(name) if name in {"builtins", *allowed_modules} else None
    kind = getattr(module, str(failure.get("class")), None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return remote
    try:
        return kind(*failure.get("args", ()), **failure.get("kwargs", {}))
    except TypeError:
        return remote


class AnswerSender:
    """Sends answers into the queues of their callers.

    A caller that connects again after an outage may have no queue for a while.

    :param timeout: seconds after which an answer is given up
    """

    def __init__(self, sender: broker.Sender, timeout: float) -> None:
        self._sender = sender
        self._timeout = timeout
        self._lock = threading.Lock()
        self._missing: cachetools.TTLCache[str, bool] = cachetools.TTLCache(
            MAX_MISSING, MISSING_TTL
        )

    def send(self, queue: str, message_id: str | None, reply: Any, failure: Any) -> None:
        """Send an answer; drop it if its queue is missing.

        :raises MessageDeliveryFailure: the queue refuses it, or the message queue is away
        """
        content = pack(message_id, reply, failure)
        deadline = time.monotonic() + self._timeout
        while not self._is_missing(queue):
            try:
                self._sender.send(content, "", queue)
            except messaging.MessageUndeliverable:
                if time.monotonic() >= deadline:
                    self._record_missing(queue)
            except messaging.MessageDeliveryFailure as error:
                is_full = isinstance(error.__cause__, amqp_exceptions.MessageNacked)
                if is_full or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(PAUSE)
        LOG.debug("Reply queue %s is missing; the answer to %s is dropped", queue, message_id)

    def _is_missing(self, queue: str) -> bool:
        with self._lock:
            return queue in self._missing

    def _record_missing(self, queue: str) -> None:
        with self._lock:
            self._missing[queue] = True

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()
