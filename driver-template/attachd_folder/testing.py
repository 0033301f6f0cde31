# SPDX-License-Identifier: Apache-2.0
"""The backend on which the contract suite runs the driver."""

from pathlib import Path
from typing import Any

import fixtures

from attachd.drivers import base
from attachd.tests.contract import backends
from attachd.tests.fixtures import initiators


class Folder(backends.Backend):
    """An empty folder for each test; a driver with a server starts it here."""

    forgets = False  # exports survive a restart
    unusable_connectors = ({}, {"host": ""})

    def _setUp(self) -> None:  # noqa: N802  the name that fixtures calls
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def options(self) -> dict[str, Any]:
        """Return the options of the driver."""
        return {"folder_path": f"{self.folder}"}

    def host(self, name: str) -> initiators.Host:
        """Return a host that reads and writes with the answer of grant()."""
        return initiators.LocalHost(name)

    def open(self, name: str, info: initiators.ConnectionInfo) -> initiators.OpenVolume:
        """Open a volume once; needed if session_end or detach_proof is promised."""
        return initiators.OpenFile(info)

    def restart(self, driver: base.Driver) -> None:
        """Restart the server; files stay."""

    def orphans(self) -> list[str]:
        """List what must not remain without volumes."""
        return [f"{path}" for path in self.folder.glob("*/*")]

    def seen(self, driver: base.Driver) -> Any:
        """Return all state, for comparisons."""
        found = {path: path.lstat() for path in self.folder.rglob("*")}
        return sorted((path, stat.st_size, stat.st_blocks) for path, stat in found.items())
