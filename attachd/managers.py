# SPDX-License-Identifier: Apache-2.0
"""A manager as rpcapi asks it: in what it understands, its troubles told in our own terms."""

from collections.abc import Iterator, Mapping
import contextlib
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import oslo_messaging as messaging
from oslo_versionedobjects.exception import IncompatibleObjectVersion

from attachd import exception, service, upgrade_levels
from attachd.conf import CONF
from attachd.context import RequestContext


class Since(NamedTuple):
    """From which version on there are a method, and those arguments that came later."""

    method: str = "1.0"
    arguments: Mapping[str, str] = MappingProxyType({})


class Manager:
    """Whoever serves a backend, asked in what it understands.

    :param backend: ``host@backend``
    :param newest: the version of the contract that this code speaks
    :param since: of each method
    """

    def __init__(self, backend: str, newest: str, since: Mapping[str, Since]) -> None:
        self._backend = backend
        self._since = since
        self._level = upgrade_levels.of_backend(backend, newest)
        self._client = service.client(
            backend,
            timeout=CONF.rpc.attach_timeout,
            version=self._level.contract,
            objects=self._level.objects,
        )

    def knows(self, method: str, argument: str | None = None) -> bool:
        """Tell whether it has a method, or an argument of one."""
        since = self._since[method]
        needed = since.method if argument is None else since.arguments.get(argument, since.method)
        return not upgrade_levels.is_older(self._level.contract, needed)

    def spare(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Return of arguments that it can do without those that it knows."""
        return {name: value for name, value in arguments.items() if self.knows(method, name)}

    def check(self, needed: str) -> None:
        """Refuse what it does not know; raises Unavailable."""
        _check(self._backend, self._level.contract, needed)

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Have it do something and return its answer; raises Unavailable where it cannot."""
        return self._client.call(context, method, **self._understood(method, arguments))

    def cast(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Have it do something; raises Unavailable where it cannot."""
        self._client.cast(context, method, **self._understood(method, arguments))

    def _understood(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.check(self._since[method].method)
        for name, since in self._since[method].arguments.items():
            if arguments.get(name) in _NOTHING and not self.knows(method, name):
                arguments.pop(name, None)
            elif name in arguments:
                self.check(since)
        return arguments


_NOTHING: Final = (None, "")
"""An argument of this value says nothing."""


def check(backend: str, newest: str, needed: str) -> None:
    """Refuse what not every manager of a backend knows; raises Unavailable.

    :param newest: the version of the contract that this code speaks
    :param needed: in which it came
    """
    _check(backend, upgrade_levels.of_backend(backend, newest).contract, needed)


def contract_of_all(newest: str, since: Since) -> str:
    """Return the version in which a method can be asked of all managers.

    :raises Unavailable: one of them does not know it
    """
    contract = upgrade_levels.of_everybody(newest).contract
    _check("One of the managers", contract, since.method)
    return contract


def _check(whom: str, contract: str, needed: str) -> None:
    if upgrade_levels.is_older(contract, needed):
        raise exception.Unavailable(
            reason=f"{whom} is being upgraded: this takes version {needed} of the RPC contract, "
            f"and {contract} is spoken with it. Try again later. (Operators: see [upgrade_levels] "
            "attachd_manager.)"
        )


@contextlib.contextmanager
def translated(backend: str, about: str) -> Iterator[None]:
    """Say in our own terms what went wrong on the way to the manager.

    :param about: what the message is about; whoever creates it knows its id from here only
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
        upgrade_levels.forget()
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
"""What is raised where a message, or an object in it, is of a version that is not known."""


def _kind(error: Exception) -> str:
    return str(getattr(error, "exc_type", type(error).__name__))
