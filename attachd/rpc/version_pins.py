# SPDX-License-Identifier: Apache-2.0
"""RPC versions that managers understand, for a cluster of two releases.

A version of the contract is the whole of what both sides know: its methods, their arguments, and
the versions of the objects.  Managers report theirs with everything else
(db/cluster/services.py), and [upgrade_levels] may name one that counts for all of them.
"""

import functools
import threading
import time
from typing import NamedTuple

from oslo_utils.versionutils import convert_version_to_tuple as number

from attachd.conf import CONF
from attachd.conf.upgrade_levels import AUTO
from attachd.db.cluster import services
from attachd.objects import base

DEFAULT_VERSION = "1.0"
"""Contract of a manager that reports none."""

CACHE_TTL = 10.0
"""Seconds that versions read from the database are cached."""


class VersionPin(NamedTuple):
    """A contract and its objects.

    :ivar contract: its version, as in manager_api
    :ivar objects: their versions
    """

    contract: str
    objects: base.Manifest


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
    levels = (_level(each, newest) for each in _reports.latest().values() if each.alive)
    return min([_own(newest), *levels], key=lambda level: number(level.contract))


def clear_cache() -> None:
    """Read the database at the next call: a manager has refused a cached version."""
    _reports.forget()


@functools.lru_cache(maxsize=128)
def is_older(version: str, than: str) -> bool:
    """Compare versions as numbers: 1.9 is older than 1.10."""
    return number(version) < number(than)


def _own(newest: str) -> VersionPin:
    return VersionPin(newest, base.newest())


def _pinned(contract: str, newest: str) -> VersionPin:
    return _own(newest) if not is_older(contract, newest) else _as_of(contract)


def _as_of(contract: str) -> VersionPin:
    return VersionPin(contract, base.of_contract(contract))


def _level(spoken: services.Versions, newest: str) -> VersionPin:
    contract = spoken.contract or DEFAULT_VERSION
    if not is_older(contract, newest):
        return _own(newest)
    if spoken.objects is None:
        return _as_of(contract)
    return VersionPin(contract, base.from_text(spoken.objects))


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
