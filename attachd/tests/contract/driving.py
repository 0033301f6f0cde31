# SPDX-License-Identifier: Apache-2.0
"""The base class of the contract suite: a driver on a backend of its own, once for each."""

from importlib import metadata
import json
import logging
import secrets
from typing import Any
import uuid

import fixtures
from oslo_config import cfg
import testtools

from attachd import exception
from attachd.conf import base as base_conf
from attachd.drivers import base
from attachd.tests.contract import backends

GROUP = "backend"
MIB = 2**20
GIB = 2**30
ZEROS = bytes(4096)


def _scenarios() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for entry in sorted(metadata.entry_points(group="attachd.drivers"), key=lambda e: e.name):
        makers = backends.find(entry.name)
        for make in makers:
            name = f"{entry.name}.{getattr(make, '__name__', make)}"
            found.append((name, {"entry": entry, "make_backend": make}))
        if not makers:
            found.append((entry.name, {"entry": entry, "make_backend": None}))
    return found


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
        self.logged = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        self.backend = self.useFixture(self.make_backend(self))
        self.options = self.backend.options()
        self.driver = self.new_driver()
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
        return driver

    def volume(self, size_gib=1) -> base.VolumeRef:
        """Create a volume, removed with the test."""
        asked = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        notes = self.driver.create(asked)
        volume = base.VolumeRef(asked.id, size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete, volume)
        return volume

    def export(self, host="a", mode="rw", **connector) -> base.Export:
        """Describe an attachment to a host."""
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

    def assert_refused(self, call, *arguments, final=None):
        """Expect a BackendError."""
        error = self.assertRaises(exception.BackendError, call, *arguments)
        self.assertNotEqual("", f"{error}")
        if final is not None:
            self.assertIs(final, error.final, f"{error}")
