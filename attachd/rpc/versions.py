# SPDX-License-Identifier: Apache-2.0
"""Call managers of several releases, each in the newest version that it understands.

A version of the contract is the whole of what both sides know: its methods, their arguments, and
the versions of the objects.  Managers report theirs with everything else
(db/cluster/services.py), and [upgrade_levels] may name one that counts for all of them.
"""

from collections.abc import Iterator, Mapping
import contextlib
import functools
import threading
import time
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import oslo_messaging as messaging
from oslo_utils.versionutils import convert_version_to_tuple as number
from oslo_versionedobjects.exception import IncompatibleObjectVersion

from attachd import exception
from attachd.conf import CONF
from attachd.conf.upgrade_levels import AUTO
from attachd.context import RequestContext
from attachd.db.cluster import services
from attachd.objects import Manifest, manifest_of_contract, newest_manifest, parse_manifest
from attachd.rpc import transport

DEFAULT_VERSION = "1.0"
"""Contract of a manager that reports none."""

CACHE_TTL = 10.0
"""Seconds that versions read from the database are cached."""


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
    backend: str, newest: str, since: Mapping[str, IntroducedIn], timeout: int
) -> VersionedManagerClient:
    """Return a client of the managers of one backend.

    :param backend: ``host@backend``
    :param newest: the version of the contract that this code speaks
    :param timeout: whole seconds to wait for an answer; there is a client for each value
    """
    level = get_for_backend(backend, newest)
    client = transport.get_client(
        backend, timeout=timeout, version=level.contract, objects=level.objects
    )
    return VersionedManagerClient(backend, client, level.contract, since)


def get_fanout_client(newest: str, since: Mapping[str, IntroducedIn]) -> VersionedManagerClient:
    """Return a client for casts to all managers, in the version that all of them understand.

    :param newest: the version of the contract that this code speaks
    """
    contract = get_for_all_managers(newest).contract
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
        clear_cache()
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


class VersionPin(NamedTuple):
    """A contract and its objects.

    :ivar contract: its version, as in manager_api
    :ivar objects: their versions
    """

    contract: str
    objects: Manifest


def get_for_backend(backend: str, newest: str) -> VersionPin:
    """Return the versions that every manager of a backend understands.

    A backend without a report counts as one of this release.

    :param backend: ``host@backend``
    :param newest: the contract that this code speaks
    """
    if (pinned := CONF.upgrade_levels.attachd_manager) != AUTO:
        return _pinned(pinned, newest)
    spoken = _reports.latest().get(backend)
    return _own(newest) if spoken is None else _level(spoken, newest)


def get_for_all_managers(newest: str) -> VersionPin:
    """Return the versions that all managers understand that are alive."""
    if (pinned := CONF.upgrade_levels.attachd_manager) != AUTO:
        return _pinned(pinned, newest)
    levels = (_level(spoken, newest) for spoken in _reports.latest().values() if spoken.alive)
    return min([_own(newest), *levels], key=lambda level: number(level.contract))


def clear_cache() -> None:
    """Read the database at the next call: a manager has refused a cached version."""
    _reports.forget()


@functools.lru_cache(maxsize=128)
def is_older(version: str, than: str) -> bool:
    """Compare versions as numbers: 1.9 is older than 1.10."""
    return number(version) < number(than)


def _own(newest: str) -> VersionPin:
    return VersionPin(newest, newest_manifest())


def _pinned(contract: str, newest: str) -> VersionPin:
    return _own(newest) if not is_older(contract, newest) else _as_of(contract)


def _as_of(contract: str) -> VersionPin:
    return VersionPin(contract, manifest_of_contract(contract))


def _level(spoken: services.Versions, newest: str) -> VersionPin:
    contract = spoken.contract or DEFAULT_VERSION
    if not is_older(contract, newest):
        return _own(newest)
    if spoken.objects is None:
        return _as_of(contract)
    return VersionPin(contract, parse_manifest(spoken.objects))


class _Reports:
    """Cache of the last reports of managers, for all backends."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._asked: float | None = None
        self._latest: dict[str, services.Versions] = {}

    def latest(self) -> dict[str, services.Versions]:
        with self._mutex:
            if self._asked is None or time.monotonic() > self._asked + CACHE_TTL:
                self._latest = services.versions()
                self._asked = time.monotonic()
            return self._latest


_reports = _Reports()
