# SPDX-License-Identifier: Apache-2.0
"""Refusal of requests whose header Host names another server; for attachd-all-in-one.

A web page can have its own name resolve to a loopback address after it was loaded, and its scripts
then send requests there as to their own server (DNS rebinding).  Such a request has the name of
the page in its header Host.
"""

from collections.abc import Collection, Iterable
import ipaddress
import socket
from typing import Final
import urllib.parse

from attachd import exception
from attachd.api import errors, identity
from attachd.conf import CONF

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def own_names(host: str) -> frozenset[str]:
    """Return the names of a server that listens on ``host``, in lower case.

    A server that listens on all addresses also has the name of this machine, and each of its
    addresses: a page cannot be loaded from an address that is not its server's.
    """
    names = {host.lower(), *LOOPBACK_NAMES}
    if _is_unspecified(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    if CONF.api.public_endpoint:
        names.add(urllib.parse.urlsplit(CONF.api.public_endpoint).hostname or "")
    return frozenset(names)


class HostCheck:
    """WSGI middleware that answers with a 400 if the request is for another server.

    :param names: as of :func:`own_names`
    """

    def __init__(self, application: identity.Application, names: Collection[str]) -> None:
        self._application = application
        self._names = names
        self._any_address = any(map(_is_unspecified, names))

    def __call__(
        self, environ: identity.Environ, start_response: identity.StartResponse
    ) -> Iterable[bytes]:
        """Pass the request on, or refuse it."""
        host = environ.get("HTTP_HOST")
        # Browsers always send it.
        if host is None or self._is_own(host):
            return self._application(environ, start_response)
        refusal = exception.BadRequest(
            reason=f"The header Host names {host[:100]!r}, which is not this server. Without "
            "authentication it answers only to its own names: use the URL that it prints at its "
            "start."
        )
        fault = errors.fault(refusal, "")
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(fault.body))),
            *fault.headers.items(),
        ]
        start_response("400 Bad Request", headers)
        return [fault.body]

    def _is_own(self, header: str) -> bool:
        try:
            name = urllib.parse.urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return name in self._names or (self._any_address and _is_address(name))


def _is_unspecified(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
