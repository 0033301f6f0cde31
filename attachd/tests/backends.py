# SPDX-License-Identifier: Apache-2.0
"""A backend of a test's own: the fake driver, which also keeps all that it was handed.

``backends.use(self)`` in a setUp() also makes the database; attachd.tests.rows fills it with
volumes of this backend.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
import tempfile
from typing import Any, NamedTuple
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.drivers import base, fake
from attachd.manager import backends
from attachd.tests import databases

NAME = "fake"
HOST = "here@fake"


class Handed(NamedTuple):
    """What one call of the driver was given; what a method does not take is None."""

    method: str
    volume: base.VolumeRef
    export: base.Export | None = None
    others: Sequence[base.Export] | None = None
    size_gib: int | None = None
    source: base.VolumeRef | None = None


class Killed(BaseException):
    """Stands for the death of the process: nobody catches it."""


class RecordingDriver(fake.FakeDriver):
    """The fake driver with a memory."""

    def __init__(self) -> None:
        CONF.register_opts(self.OPTIONS, group=NAME)
        super().__init__(NAME, CONF)
        self.handed: list[Handed] = []

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        self.handed.append(Handed("create", volume))
        return {**super().create(volume), "lun": 1}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        self.handed.append(Handed("clone", volume, source=source))
        return {**super().clone(volume, source), "lun": 1}

    def delete(self, volume: base.VolumeRef) -> None:
        self.handed.append(Handed("delete", volume))
        super().delete(volume)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        self.handed.append(Handed("extend", volume, others=exports, size_gib=size_gib))
        super().extend(volume, size_gib, exports)

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        self.handed.append(Handed("grant", volume, export))
        return super().grant(volume, export)

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        self.handed.append(Handed("revoke", volume, export, others))
        super().revoke(volume, export, others)

    @property
    def methods(self) -> list[str]:
        """The names of what was called, in order."""
        return [each.method for each in self.handed]

    def granted(self) -> set[str]:
        """The attachments whose hosts reach their volumes."""
        return {each for granted in list(self._granted.values()) for each in granted}

    def sizes(self) -> dict[str, int]:
        """The volumes that exist, and their sizes in GiB."""
        return dict(self._sizes)

    def empty(self) -> None:
        """Forget all volumes and exports."""
        self._sizes.clear()
        self._granted.clear()

    def failing(self, *methods: str, final: bool = False) -> AbstractContextManager[Any]:
        """Let these methods fail for a while, before they do anything."""
        error = exception.BackendError("The shelf burns.", final=final)
        return self.raising(error, *methods)

    def raising(self, error: BaseException, *methods: str) -> AbstractContextManager[Any]:
        """Let these methods raise something for a while."""

        def script(call: fake.Call) -> None:
            if call.method in methods:
                raise error

        return mock.patch.object(self, "script", script)

    def failing_late(self, method: str) -> AbstractContextManager[Any]:
        """Let a method fail for a while, after it has done what it was asked to."""
        real = getattr(self, method)

        def late(*args: Any) -> None:
            real(*args)
            raise exception.BackendError("The shelf has just burnt.")

        return mock.patch.object(self, method, late)


class FakeBackend(backends.Backend):
    """A backend that says of its driver that it is the recording one."""

    driver: RecordingDriver


def use(test: unittest.TestCase, kind: str = "sqlite") -> FakeBackend:
    """Make a database of some kind, and a backend which is ready to work."""
    databases.use(test, kind)
    folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(folder.cleanup)
    override(test, "state_path", folder.name)
    override(test, "host", HOST.partition("@")[0])
    backend = FakeBackend(NAME, RecordingDriver())
    backend.setup()
    return backend


def override(test: unittest.TestCase, name: str, value: Any, group: str | None = None) -> None:
    """Set an option for the rest of a test."""
    CONF.set_override(name, value, group=group)
    test.addCleanup(CONF.clear_override, name, group=group)
