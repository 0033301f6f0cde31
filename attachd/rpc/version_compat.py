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
    """RPC client of the manager of one backend, which may be of an older release.

    :param backend: ``host@backend``
    :param newest: the version of the contract that this code speaks
    :param since: versions that introduced methods and arguments; those that are missing came
        with 1.0
    """

    def __init__(self, backend: str, newest: str, since: Mapping[str, IntroducedIn]) -> None:
        self._backend = backend
        self._since = since
        self._level = version_pins.of_backend(backend, newest)
        self._client = transport.get_client(
            backend,
            timeout=CONF.rpc.attach_timeout,
            version=self._level.contract,
            objects=self._level.objects,
        )

    def knows(self, method: str, argument: str | None = None) -> bool:
        """Return whether the manager has a method, or an argument of it."""
        since = self._introduced(method)
        needed = since.method if argument is None else since.arguments.get(argument, since.method)
        return not version_pins.is_older(self._level.contract, needed)

    def drop_unsupported(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Return the arguments without those that the manager does not know."""
        return {name: value for name, value in arguments.items() if self.knows(method, name)}

    def check(self, needed: str) -> None:
        """Check that the manager has a version; raises Unavailable."""
        _check(self._backend, self._level.contract, needed)

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method and return its answer; raises Unavailable if the manager lacks it."""
        return self._client.call(context, method, **self._understood(method, arguments))

    def cast(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Cast to a method; raises Unavailable if the manager lacks it."""
        self._client.cast(context, method, **self._understood(method, arguments))

    def _introduced(self, method: str) -> IntroducedIn:
        return self._since.get(method, IntroducedIn())

    def _understood(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        since = self._introduced(method)
        self.check(since.method)
        for name, version in since.arguments.items():
            if arguments.get(name) in _NOTHING and not self.knows(method, name):
                arguments.pop(name, None)
            elif name in arguments:
                self.check(version)
        return arguments


_NOTHING: Final = (None, "")
"""Values by which an argument may be dropped."""


def check(backend: str, newest: str, needed: str) -> None:
    """Check that all managers of a backend have a version; raises Unavailable.

    :param newest: the version of the contract that this code speaks
    :param needed: the version that introduced the feature
    """
    _check(backend, version_pins.of_backend(backend, newest).contract, needed)


def contract_of_all(newest: str, since: IntroducedIn) -> str:
    """Return the version in which a method can be called on all managers.

    :raises Unavailable: one of them lacks the method
    """
    contract = version_pins.of_all_managers(newest).contract
    _check("One of the managers", contract, since.method)
    return contract


def _check(whom: str, contract: str, needed: str) -> None:
    if version_pins.is_older(contract, needed):
        raise exception.Unavailable(
            reason=f"{whom} is being upgraded: this takes version {needed} of the RPC contract, "
            f"and {contract} is spoken with it. Try again later. (Operators: see [upgrade_levels] "
            "attachd_manager.)"
        )


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
