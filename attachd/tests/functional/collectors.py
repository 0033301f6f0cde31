# SPDX-License-Identifier: Apache-2.0
"""Where processes under test send their traces: a collector that speaks OTLP over HTTP."""

import gzip
import http.server
import threading
from typing import Any, NamedTuple
import unittest

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


class Span(NamedTuple):
    """What was told of one span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    facts: dict[str, Any]
    failed: bool


class Collector:
    """Listens until the test is over.

    :ivar url: for [oslo_middleware_tracing]otlp_endpoint
    """

    def __init__(self, test: unittest.TestCase) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer._take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

    def _take(self, body: bytes) -> None:
        message: Any = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        found = [
            _span(_facts(resource.resource.attributes).get("service.name", ""), span)
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += found

    @property
    def spans(self) -> list[Span]:
        """All that has come so far."""
        with self._lock:
            return list(self._spans)


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _span(service: str, span: Any) -> Span:
    return Span(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _facts(span.attributes),
        span.status.code == 2,
    )
