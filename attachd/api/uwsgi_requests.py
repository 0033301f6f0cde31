# SPDX-License-Identifier: Apache-2.0
"""Requests that uWSGI passes on incompletely, and its log messages about them; used by wsgi.

A query that does not fit into the rest of uWSGI's buffer is missing in the environ, and a chunked
body has to be read with a function of its own.  A header that does not fit ends the request, and
uWSGI logs it with its value.
"""

from collections.abc import Iterable, MutableMapping
import io
import os
import re
import sys
import threading
from types import ModuleType
from typing import Any, Final

from oslo_log import log

from attachd.api import identity
from attachd.conf import CONF

LOG = log.getLogger(__name__)

_MAX_CHUNKED: Final = 32 * 1024 * 1024
"""Bytes of a chunked body that are read, so that the client can read the response."""

_VALUE: Final = re.compile(rb"(unable to add \w+=).*( to uwsgi packet)", re.DOTALL)


def server() -> ModuleType | None:
    """Return the module that exists only inside of uWSGI; None: another server."""
    return sys.modules.get("uwsgi")


class CompleteRequests:
    """Middleware that completes the environ of requests, for the process of a uWSGI worker."""

    def __init__(self, inner: identity.Application, uwsgi: Any) -> None:
        self._inner = inner
        self._uwsgi = uwsgi

    def __call__(
        self, environ: identity.Environ, start_response: identity.StartResponse
    ) -> Iterable[bytes]:
        """Handle one request."""
        if not environ.get("QUERY_STRING"):
            environ["QUERY_STRING"] = environ.get("REQUEST_URI", "").partition("?")[2]
        if "HTTP_TRANSFER_ENCODING" in environ:
            self._read_chunks(environ)
        return self._inner(environ, start_response)

    def _read_chunks(self, environ: MutableMapping[str, Any]) -> None:
        """Replace a chunked body by its content, of which a part is enough to refuse it."""
        if environ["HTTP_TRANSFER_ENCODING"].strip().lower() != "chunked":
            return
        limit = CONF.api.max_request_body_size
        kept = b""
        length = missing = 0
        try:
            while length <= _MAX_CHUNKED and (chunk := self._uwsgi.chunked_read()):
                length += len(chunk)
                if len(kept) <= limit:
                    kept += chunk
        except OSError as error:
            LOG.debug("Reading a chunked body failed: %s", error)
            missing = 1  # so that serialization.py reports an incomplete body
        environ["wsgi.input"] = io.BytesIO(kept)
        environ["CONTENT_LENGTH"] = str(len(kept) + (missing if len(kept) <= limit else 0))
        del environ["HTTP_TRANSFER_ENCODING"]


def duplicate_stderr() -> None:
    """Let Python write its messages past :func:`redact_log`; call it before logging is set up."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")


def redact_log(uwsgi: Any) -> None:
    """Remove the values of headers from what this worker of uWSGI logs itself.

    uWSGI writes to file descriptor 2.  That becomes a pipe, from which a thread copies the
    messages.  If they come faster than they are copied, uWSGI drops some of them.
    """
    if not uwsgi.worker_id():  # no thread survives the fork of workers
        return
    target = os.dup(2)
    source, pipe = os.pipe()
    os.set_blocking(pipe, False)
    os.dup2(pipe, 2)
    os.close(pipe)
    threading.Thread(target=_copy_redacted, args=(source, target), daemon=True).start()


def _copy_redacted(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            os.write(target, redacted(line))


def redacted(line: bytes) -> bytes:
    """Return a message of uWSGI without the value of the variable that it names."""
    return _VALUE.sub(rb"\1(not shown)\2", line)
