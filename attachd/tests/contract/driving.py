# SPDX-License-Identifier: Apache-2.0
"""The base class of the contract suite: a driver on a backend of its own, once for each."""

import dataclasses
import faulthandler
import functools
from importlib import metadata
import json
import logging
import secrets
import sys
from typing import Any
import uuid

import fixtures
from oslo_config import cfg
import testtools

from attachd import exception
from attachd.conf import base as base_conf
from attachd.drivers import abilities, base
from attachd.tests.contract import backends

GROUP = "backend"
MIB = 2**20
GIB = 2**30
ZEROS = bytes(4096)


_METHODS = (
    *("create", "clone", "delete", "extend", "grant", "revoke", "connection_key"),
    *("list_volume_exports", "expected_exports", "revoke_all_except", "manage", "unmanage"),
    *("create_snapshot", "delete_snapshot", "create_from_snapshot", "revert"),
    "end_remembered_clients",
)


def _id(value: Any) -> str:
    """Return the id of a volume, a snapshot or an attachment."""
    if isinstance(value, base.Export):
        return value.attachment_id
    return value.id if isinstance(value, base.VolumeRef | base.SnapshotRef) else ""


def _scenarios() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for entry in sorted(metadata.entry_points(group="attachd.drivers"), key=lambda e: e.name):
        makers = backends.find(entry.name)
        for make in makers:
            name = f"{entry.name}.{getattr(make, '__name__', make)}"
            if part := getattr(make, "part", ""):
                name += f"[full,{part}]"
            found.append((name, {"entry": entry, "make_backend": make}))
        if not makers:
            found.append((entry.name, {"entry": entry, "make_backend": None}))
    return found


_CREATING = frozenset({"create", "clone", "manage", "create_snapshot", "create_from_snapshot"})
"""The methods before which nothing is stored of their volume or snapshot."""


class DriverCase(testtools.TestCase):
    """A driver on a backend of its own, and short ways to call it."""

    scenarios = _scenarios()
    entry: metadata.EntryPoint
    make_backend: Any

    def setUp(self):
        super().setUp()
        if self.make_backend is None:
            self.fail(
                f"The driver {self.entry.name!r} has no backend to hold the contract against: "
                "add one to attachd/tests/contract/backends.py, or name it in your package "
                f"under the entry point {backends.ENTRY_POINT!r}."
            )
        backend: backends.Backend = self.make_backend(self)
        self.useFixture(fixtures.Timeout(backend.timeout, gentle=True))
        # Where the exception does not help, as in other threads and in cleanups.
        faulthandler.dump_traceback_later(2 * backend.timeout, exit=True, file=sys.__stderr__)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        self.logged = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        self.backend = self.useFixture(backend)
        self.options = self.backend.options()
        self.provider_secrets: dict[str, Any] = {}
        self.stored: dict[str, dict[str, Any]] = {}
        self.pool = ""
        self.tested: set[str] = set()
        self.driver = self.new_driver()
        self.pool = self.pools()[0]
        self.live: dict[str, dict[str, base.Export]] = {}

    def new_driver(self) -> base.Driver:
        """Make another instance on the same backend, as another process would."""
        plugin = self.entry.load()
        conf = cfg.ConfigOpts()
        conf([], project="attachd", default_config_files=[])
        conf.register_opts(base_conf.OPTIONS)
        conf.register_opts(plugin.OPTIONS, group=GROUP)
        for name, value in self.options.items():
            conf.set_override(name, value, group=GROUP)
        driver = plugin(GROUP, conf)
        driver.setup()
        for name in _METHODS:
            if hasattr(driver, name):
                setattr(driver, name, functools.partial(self._call, getattr(driver, name)))
        self.addCleanup(driver.close)
        return driver

    def pools(self) -> list[str]:
        """Return the names of the backend's pools."""
        return [pool.name for pool in self.driver.get_stats().pools] or [GROUP]

    def _call(self, method, *args) -> Any:
        """Call a driver as the manager does, which stores its data, its secrets and sizes."""
        if method.__name__ in _CREATING:
            self.stored.pop(args[0].id, None)
        answer = method(*map(self._as_stored, args))
        self._store(method.__name__, answer, *args)
        if isinstance(answer, base.WithSecrets):
            key = _id(args[1] if isinstance(args[-1], base.Export) else args[0])
            self.provider_secrets[key] = json.loads(json.dumps(dict(answer.provider_secrets)))
            return answer.answer
        return answer

    def _store(self, method, answer, *args) -> None:
        """Store what the manager stores in the row of a volume or a snapshot."""
        if not args or not isinstance(args[0], base.VolumeRef | base.SnapshotRef):
            return
        volume_id, data = args[0].id, getattr(answer, "answer", answer)
        if method in _CREATING:
            self.stored[volume_id] = {"provider": json.loads(json.dumps(data))}
        elif method == "extend":
            known = self.stored.setdefault(volume_id, {})
            known["size_gib"] = max(args[1], known.get("size_gib", args[0].size_gib))
        elif method in {"delete", "unmanage", "delete_snapshot"}:
            self.stored.pop(volume_id, None)

    def _as_stored(self, value) -> Any:
        """Add what the manager stores of a volume, a snapshot or an export."""
        if isinstance(value, list | tuple):
            return [self._as_stored(item) for item in value]
        if secrets := self.provider_secrets.get(_id(value)):
            value = dataclasses.replace(value, provider_secrets=secrets)
        if isinstance(value, base.SnapshotRef):
            volume = self._as_stored(value.volume)
            return dataclasses.replace(value, volume=volume, **self.stored.get(value.id, {}))
        if isinstance(value, base.VolumeRef):
            value = dataclasses.replace(value, **self.stored.get(value.id, {}))
        if isinstance(value, base.VolumeRef) and not value.pool:
            value = dataclasses.replace(value, pool=self.pool)
        return value

    def volume(self, size_gib=1) -> base.VolumeRef:
        """Create a volume, removed with the test."""
        asked = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        notes = self.driver.create(asked)
        volume = base.VolumeRef(asked.id, size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete, volume)
        return volume

    def export(self, host="a", mode="rw", **connector) -> base.Export:
        """Describe an attachment to a host; "ro" becomes "rw" where the driver refuses it."""
        if not self.driver.promises.read_only_enforced:
            mode = "rw"
        known = self.backend.connector(host)
        return base.Export(f"{uuid.uuid4()}", known | connector, mode, secrets.token_hex(16))

    def granted(self, volume, export) -> base.ConnectionInfo:
        """Grant, and revoke with the test."""
        self.addCleanup(self.revoked, volume, export)
        info = self.driver.grant(volume, export)
        self.live.setdefault(volume.id, {})[export.attachment_id] = export
        return info

    def revoked(self, volume, export) -> None:
        """Revoke, and pass the other exports of the volume."""
        live = self.live.setdefault(volume.id, {})
        live.pop(export.attachment_id, None)
        self.driver.revoke(volume, export, list(live.values()))

    def host(self, name="a"):
        """Return a host that moves bytes."""
        host = self.backend.host(name)
        if host is None:
            self.skipTest(f"{self.entry.name} moves no bytes")
        return host

    def require(self, name, declared):
        """Skip a test of what the driver does not declare.

        :param name: of what is tested; the certificate has it
        """
        self.tested.add(name)
        if not declared:
            self.skipTest(f"the driver does not declare {name}")

    def require_capability(self, name):
        """Skip a test of a capability that the driver does not report."""
        self.require(name, self.driver.get_stats().capabilities.get(name))

    def require_ability(self, ability):
        """Skip a test of an ability that the driver does not have."""
        (name,) = (name for name, known in abilities.ABILITIES.items() if known is ability)
        self.require(name, isinstance(self.driver, ability))

    def require_promise(self, name):
        """Skip a test of what the driver does not promise."""
        self.require(name, getattr(self.driver.promises, name))

    def exported(self) -> list[base.BackendExport]:
        """List what the backend exports; nothing if the driver cannot."""
        listing = isinstance(self.driver, abilities.Audit)
        return list(self.driver.list_exports()) if listing else []

    def listed(self, volume) -> set[base.BackendExport]:
        """List what the backend exports of a volume; nothing if the driver cannot."""
        listing = isinstance(self.driver, abilities.Audit)
        return set(self.driver.list_volume_exports(volume)) if listing else set()

    def expected(self, volume, *exports) -> set[base.BackendExport]:
        """Return what :meth:`listed` has to return while just these exports are granted."""
        listing = isinstance(self.driver, abilities.Audit)
        return set(self.driver.expected_exports(volume, exports)) if listing else set()

    def assert_holder(self, volume, reservation, holder, other):
        """Check that a reservation names the host of one export, and not that of another one."""
        for export, holds in ((holder, True), (other, False)):
            names = {name for item in self.expected(volume, export) for name in item.holders}
            self.assertEqual(holds, reservation.holder in names)

    def assert_refused(self, call, *arguments, final=None):
        """Expect a BackendError."""
        error = self.assertRaises(exception.BackendError, call, *arguments)
        self.assertNotEqual("", f"{error}")
        if final is not None:
            self.assertIs(final, error.final, f"{error}")
