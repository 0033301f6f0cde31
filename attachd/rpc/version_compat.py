# SPDX-License-Identifier: Apache-2.0
"""Call managers of several releases, and map RPC errors to attachd's exceptions."""

from collections.abc import Iterator, Mapping
import contextlib
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import oslo_messaging as messaging
from oslo_versionedobjects.exception import IncompatibleObjectVersion

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import transport, version_pins


class IntroducedIn(NamedTuple):
    """Version that introduced a method, and versions that introduced later arguments."""

    method: str = "1.0"
    arguments: Mapping[str, str] = MappingProxyType({})


class VersionedManagerClient:
    """RPC client of managers, which may be of an older release.

    :param name: of the managers, for messages
    :param client: sends messages of their version
    :param contract: that version
    :param since: versions that introduced methods and arguments; those that are missing came
        with 1.0
    """

    def __init__(
        self, name: str, client: transport.Client, contract: str, since: Mapping[str, IntroducedIn]
    ) -> None:
        self._name = name
        self._client = client
        self._contract = contract
        self._since = since

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method and return its answer; raises Unavailable if the manager lacks it."""
        return self._client.call(context, method, **self._understood(method, arguments))

    def cast(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Cast to a method; raises Unavailable if the manager lacks it."""
        self._client.cast(context, method, **self._understood(method, arguments))

    def _understood(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        since = self._since.get(method, IntroducedIn())
        self._check(since.method)
        for name, version in since.arguments.items():
            if arguments.get(name) in _NOTHING and not self._client.can_send_version(version):
                arguments.pop(name, None)
            elif name in arguments:
                self._check(version)
        return arguments

    def _check(self, needed: str) -> None:
        if not self._client.can_send_version(needed):
            raise exception.Unavailable(
                reason=f"{self._name} is being upgraded: this takes version {needed} of the RPC "
                f"contract, and {self._contract} is spoken with it. Try again later. (Operators: "
                "see [upgrade_levels] attachd_manager.)"
            )


_NOTHING: Final = (None, "")
"""Values by which an argument may be dropped."""


def get_client(
    backend: str, newest: str, since: Mapping[str, IntroducedIn]
) -> VersionedManagerClient:
    """Return a client of the managers of one backend.

    :param backend: ``host@backend``
    :param newest: the version of the contract that this code speaks
    """
    level = version_pins.get_for_backend(backend, newest)
    client = transport.get_client(
        backend, timeout=CONF.rpc.attach_timeout, version=level.contract, objects=level.objects
    )
    return VersionedManagerClient(backend, client, level.contract, since)


def get_fanout_client(newest: str, since: Mapping[str, IntroducedIn]) -> VersionedManagerClient:
    """Return a client for casts to all managers, in the version that all of them understand.

    :param newest: the version of the contract that this code speaks
    """
    contract = version_pins.get_for_all_managers(newest).contract
    client = transport.get_fanout_client(contract)
    return VersionedManagerClient("One of the managers", client, contract, since)


@contextlib.contextmanager
def map_rpc_errors(backend: str, about: str) -> Iterator[None]:
    """Map errors of oslo.messaging to attachd's exceptions.

    :param about: subject of the message; the creator of a volume learns its id from here
    """
    if not backend:
        raise exception.Conflict(reason="The volume has no backend yet; wait for its creation.")
    try:
        yield
    except messaging.MessagingTimeout:
        raise exception.ManagerTimeout(backend=backend, about=about) from None
    except (messaging.RemoteError, IncompatibleObjectVersion) as error:
        if _kind(error) not in _MISUNDERSTOOD:
            raise
        version_pins.clear_cache()
        raise exception.Unavailable(
            reason=f"{backend} is being upgraded, and was asked in a version that it does not "
            "understand. Try again later. (Operators: see [upgrade_levels] attachd_manager.)"
        ) from error
    except messaging.MessageUndeliverable:
        raise exception.Unavailable(
            reason=f"No volume manager serves {backend} at present. Try again later."
        ) from None
    except messaging.MessageDeliveryFailure as error:
        raise exception.Unavailable(
            reason="The message queue does not answer. Try again later."
        ) from error


_MISUNDERSTOOD: Final = frozenset({"UnsupportedVersion", "IncompatibleObjectVersion"})
"""Errors for a message, or an object in it, of an unknown version."""


def _kind(error: Exception) -> str:
    return str(getattr(error, "exc_type", type(error).__name__))
