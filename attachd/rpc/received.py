# SPDX-License-Identifier: Apache-2.0
"""Limits of what this process accepts from the message queue; admission.py has those of agents.

The account of a host that has been taken over may send any bytes.  kombu decompresses a body
without a limit, by each method that it knows, before any key is checked: some hundred bytes would
take all memory.  So only JSON is accepted, of limited size, also after decompression.
"""

import bz2
from collections.abc import Callable
from typing import Any, Final
import zlib

from amqp import basic_message, method_framing, spec  # type: ignore[import-untyped]
from kombu import exceptions as kombu_exceptions
import kombu.compression
from kombu.transport import pyamqp

MAX_SIZE: Final = 2**24
"""Bytes of a message, before and after decompression; RabbitMQ 4 itself accepts no more."""

REGISTRY_TOPIC: Final = "attachd-agent-manager"
"""The topic that managers listen on for the calls of agents."""

REGISTRY_EXCHANGE: Final = "amq.topic"
"""Of the server for agents.  Exists in each virtual host; RabbitMQ refuses to delete it."""

_JSON: Final = "application/json"


class Refused(kombu_exceptions.DecodeError):
    """A message that is not accepted."""


class Content(basic_message.Message):
    """Content of a message as amqp reads it from its frames, whatever its sender has written.

    RabbitMQ checks neither texts nor times in properties.  An error of amqp would end the
    connection, and the same message would end the next one.  So properties that cannot be read are
    left out, and so is the body of a message that is too large.
    """

    properties: dict[str, Any]

    def __init__(self, frame_method: Any = None, frame_args: Any = None) -> None:
        """Prepare to read content.

        :param frame_method: the method of AMQP
        :param frame_args: its arguments in bytes
        """
        if frame_method == spec.Basic.Deliver:
            frame_args = _without_bad_key(bytes(frame_args))
        super().__init__(frame_method=frame_method, frame_args=frame_args)

    def inbound_header(self, buf: bytes, offset: int = 0) -> int:
        """Take the header: the size of the body, which amqp reads first, and the properties."""
        try:
            read: int = super().inbound_header(buf, offset)
        except Exception:  # noqa: BLE001  of any kind: it depends on what was sent
            self.properties = {}
            self.ready = not self.body_size
            return offset
        return read

    def inbound_body(self, buf: bytes) -> None:
        """Take a part of the body."""
        if self.body_size <= MAX_SIZE:
            super().inbound_body(buf)
            return
        self.body_received += len(buf)
        self.ready = self.body_received >= self.body_size
        self.properties = {}


def _without_bad_key(arguments: bytes) -> bytes:
    """Return the arguments of a delivery, without its routing key if that is no text."""
    offset = 4  # method
    offset += 1 + arguments[offset]  # consumer
    offset += 9  # delivery tag, flags
    offset += 1 + arguments[offset]  # exchange
    try:
        arguments[offset + 1 :].decode()
    except UnicodeDecodeError:
        return arguments[:offset] + b"\0"
    return arguments


class Message(pyamqp.Message):
    """A received message, whose body is read only if it has the form that senders use."""

    errors: Any = None

    def __init__(self, msg: Any, channel: Any = None, **kwargs: Any) -> None:
        """See pyamqp.Message; an error is raised when the body is read."""
        if reason := _find_reason(msg):
            # kombu does not decompress a message that has errors already.
            self.errors = [(Refused, Refused(reason), None)]
        super().__init__(msg, channel, **kwargs)
        if not self.errors and (reason := _size_reason(self.body)):
            self.errors = [(Refused, Refused(reason), None)]

    def decode(self) -> Any:
        """Return the content of the body; raise the error that was found when it arrived."""
        for _kind, error, _traceback in self.errors:
            raise error
        return super().decode()

    def reject(self, requeue: bool = False) -> None:  # noqa: FBT001, FBT002  kombu's signature
        """Reject the message; do nothing if it is acknowledged already.

        oslo.messaging acknowledges a call before it reads all of it, and rejects it if that fails.
        The error for the second of both would make its listener pause and connect again.
        """
        if not self.acknowledged:
            super().reject(requeue)


def _find_reason(msg: Any) -> str:
    """Return why a message is not accepted; "" if it is."""
    if msg.properties.get("content_type") != _JSON:
        return "its content type is not JSON"
    return _size_reason(msg.body)


def _size_reason(body: bytes) -> str:
    """Return why a body is not accepted; "" if it is."""
    return f"it has more than {MAX_SIZE} bytes" if len(body) > MAX_SIZE else ""


def limit() -> None:
    """Limit what this process receives from now on."""
    pyamqp.Channel.Message = Message
    method_framing.Message = Content
    compression: Any = kombu.compression
    known = set(compression.encoders())
    # These are the methods of [oslo_messaging_rabbit]kombu_compression.
    for content_type, compress, open_stream in (
        ("application/x-gzip", zlib.compress, zlib.decompressobj),
        ("application/x-bz2", bz2.compress, bz2.BZ2Decompressor),
    ):
        compression.register(compress, _limited(open_stream), content_type)
        known.discard(content_type)
    for content_type in known:
        compression.register(compression.get_encoder(content_type)[0], _refuse, content_type)


def _limited(open_stream: Callable[[], Any]) -> Callable[[bytes], bytes]:
    """Return a function that decompresses at most MAX_SIZE bytes."""

    def decompress(body: bytes) -> bytes:
        text: bytes = open_stream().decompress(body, MAX_SIZE + 1)
        if len(text) > MAX_SIZE:
            raise Refused(f"it has more than {MAX_SIZE} bytes after decompression")
        return text

    return decompress


def _refuse(_body: bytes) -> bytes:
    raise Refused("its compression is not accepted")
