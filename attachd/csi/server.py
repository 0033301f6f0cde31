# SPDX-License-Identifier: Apache-2.0
"""The gRPC server on a unix socket, which logs calls, checks requests and reports errors."""

from collections.abc import Callable, Iterable
from concurrent import futures
import contextlib
import dataclasses
import logging
import os
from pathlib import Path
import re
import socket
import stat
import threading
import time
from typing import Any, Final, Protocol
from urllib import parse

from google.protobuf.message import Message
import grpc

from attachd.csi import csi_pb2, validation
from attachd.platforms import calls
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.calls import Call, CallError, ErrorCode

LOG = logging.getLogger(__name__)

MAX_MESSAGE: Final = 256 * 1024
"""Bytes of a request; the fields of the largest have a tenth of it."""
GRACE: Final = 20.0
"""Seconds that calls in progress get at the end; Kubernetes kills after 30."""
_MORE_THREADS: Final = 128
"""Threads for calls of Identity, which are answered while all workers are in use, and for calls
whose requests do not arrive: a caller may stop after the headers."""
_LONGEST_PATH: Final = 107
"""Bytes of the path of a unix socket, by the kernel."""


class Service(Protocol):
    """A service of the Container Storage Interface.

    It has a method for each call that it serves, named as the call in snake_case:
    ``create_volume(request)`` returns the response or raises CallError.
    """

    @property
    def name(self) -> str:
        """The name in csi.proto, such as "Controller"."""


class EndpointError(Exception):
    """The server cannot listen at the endpoint."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a server.

    :ivar path: of the socket
    :ivar mode: permissions of the socket
    :ivar workers: number of calls that are served at the same time
    """

    path: Path
    mode: int = 0o600
    workers: int = 32


class Server:
    """Serves some services until it is stopped."""

    def __init__(
        self, settings: Settings, services: Iterable[Service], measured: CallMetrics
    ) -> None:
        self._settings = settings
        threads = settings.workers + _MORE_THREADS
        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, thread_name_prefix="call"),
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE),
                ("grpc.so_reuseport", 0),
            ],
            # More would wait for a thread.
            maximum_concurrent_rpcs=threads,
        )
        capacity = threading.BoundedSemaphore(settings.workers)
        for service in services:
            handlers = _handlers(service, capacity, measured)
            name = csi_pb2.DESCRIPTOR.services_by_name[service.name].full_name
            self._server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(name, handlers)]
            )

    def start(self) -> None:
        """Listen; a socket on which nothing listens is replaced.

        :raises EndpointError: the socket cannot be created, or another process listens there
        """
        path = self._settings.path
        _remove_stale(path)
        previous = os.umask(0o777 & ~self._settings.mode)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise EndpointError(f"{path}: {error}") from error
        finally:
            os.umask(previous)
        path.chmod(self._settings.mode)
        self._server.start()
        LOG.info("Serving at %s", path)

    def stop(self) -> None:
        """Refuse new calls, wait for those in progress, and remove the socket."""
        if not self._server.stop(GRACE).wait(GRACE + 1):
            LOG.warning("Calls in progress are given up; attachd goes on with their work")
        self._settings.path.unlink(missing_ok=True)


def parse_endpoint(endpoint: str) -> Path:
    """Return the path of an endpoint, such as ``unix:///run/attachd/csi.sock``.

    :raises EndpointError: it is no URL of a unix socket, or the path is too long
    """
    url = parse.urlsplit(endpoint)
    is_plain = not (url.netloc or url.query or url.fragment or "%" in url.path)
    if url.scheme != "unix" or not is_plain or not url.path.startswith("/"):
        raise EndpointError(f"The endpoint is not unix:///PATH: {endpoint}")
    if len(os.fsencode(url.path)) > _LONGEST_PATH:
        raise EndpointError(f"The path has more than {_LONGEST_PATH} bytes: {url.path}")
    return Path(url.path)


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise EndpointError(f"{path} exists and is not a socket.")
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise EndpointError(f"There is no directory {path.parent}.") from None
        return
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(f"{path}")
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise EndpointError(f"Another process serves at {path}.")


def method_name(call: str) -> str:
    """Return the name of the method for a call: ``node_get_info`` for ``NodeGetInfo``."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", call).lower()


def _handlers(
    service: Service, capacity: threading.BoundedSemaphore, measured: CallMetrics
) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    found = {}
    for method in csi_pb2.DESCRIPTOR.services_by_name[service.name].methods:
        serve = getattr(service, method_name(method.name), None)
        if serve is None:
            continue  # grpc answers UNIMPLEMENTED
        request: type[Message] = getattr(csi_pb2, method.input_type.name)
        found[method.name] = grpc.unary_unary_rpc_method_handler(
            _Handler(
                method.name, serve, None if service.name == "Identity" else capacity, measured
            ),
            request_deserializer=request.FromString,
            response_serializer=_serialize,
        )
    return found


def _serialize(response: Message) -> bytes:
    return response.SerializeToString()


class _Handler:
    """Serves one kind of call.

    :param capacity: counts calls in progress; None: they are not counted
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Any], Message],
        capacity: threading.BoundedSemaphore | None,
        measured: CallMetrics,
    ) -> None:
        self._name = name
        self._serve = serve
        self._capacity = capacity
        self._measured = measured

    def __call__(self, request: Message, context: grpc.ServicerContext) -> Message:
        call = Call.start(context.time_remaining(), is_awaited=context.is_active)
        with calls.serving(call):
            try:
                with self._measured.measure(self._name):
                    return self._answer(request)
            except CallError as error:
                LOG.warning("%s: %s: %s", self._name, error.code.name, error)
                failure = error
            except Exception:
                LOG.exception("%s failed", self._name)
                failure = CallError(ErrorCode.INTERNAL, "The log has the reason.")
        return context.abort(grpc.StatusCode[failure.code.name], f"{failure} ({call.request_id})")

    def _answer(self, request: Message) -> Message:
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            if self._capacity is not None:
                if not self._capacity.acquire(blocking=False):
                    raise CallError(
                        ErrorCode.UNAVAILABLE,
                        "As many calls as permitted are in progress. Repeat this one later.",
                    )
                stack.callback(self._capacity.release)
            validation.check(request)
            response = self._serve(request)
        # Identity is asked every few seconds.
        level = logging.DEBUG if self._capacity is None else logging.INFO
        LOG.log(level, "%s: OK after %.2f s", self._name, time.monotonic() - started)
        return response
