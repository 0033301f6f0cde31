# SPDX-License-Identifier: Apache-2.0
"""A storage driver whose calls are made by another one, in a guest with the storage.

An emulated guest is too slow for a manager.  The manager is on this machine, and finds this driver
as any driver that is installed beside attachd.
"""

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
import shlex
import subprocess
import threading
from typing import Any, Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.lab import guests, storage_node

NAME: Final = "remote"

_ENTRY_POINTS: Final = f"[attachd.drivers]\n{NAME} = {__name__}:RemoteDriver\n"
_METADATA: Final = "Metadata-Version: 2.1\nName: attachd-remote-driver\nVersion: 1\n"


def install(folder: Path, guest: guests.Guest, driver: str, options: Mapping[str, Any]) -> Path:
    """Make the driver known to processes that have a folder in their PYTHONPATH.

    :param guest: with attachd, beside the storage
    :param driver: the name of the driver in the guest
    :param options: of that driver, as values
    :returns: the program that it runs, its option ``remote_program``
    """
    package = folder / "attachd_remote_driver-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(_METADATA, encoding="utf-8")
    (package / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    program = folder / "driver"
    command = guest.lab.command_in(guest.name, *storage_node.driver_command(driver, options))
    program.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n", encoding="utf-8")
    program.chmod(0o700)
    return program


class RemoteDriver(base.Driver, abilities.OnlineExtend):
    """Sends each call, and waits for its answer."""

    OPTIONS = (cfg.StrOpt("remote_program", help="The path of the program that makes the calls."),)

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def _call(self, method: str, *arguments: Any) -> Any:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [self.options.remote_program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(storage_node.encode_call(method, *arguments) + "\n")
            stdin.flush()
            line = stdout.readline()
        if not line:
            raise exception.BackendError("The program has ended.", final=False)
        answer = json.loads(line)
        if "error" in answer:
            raise exception.BackendError(answer["error"], final=bool(answer["final"]))
        return answer["value"]

    def setup(self) -> None:
        """Set up the storage."""
        self._call("setup")

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def get_stats(self) -> base.BackendStats:
        """Return infinite capacity."""
        unlimited = float("inf")
        return base.BackendStats(NAME, unlimited, unlimited, 0)

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create a volume."""
        self._call("create", volume)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete a volume."""
        self._call("delete", volume)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        """Extend a volume, also while it is attached."""
        self._call("extend", volume, size_gib, list(exports))

    def list_volumes(self) -> Mapping[str, int]:
        """List the volumes with their sizes in bytes."""
        volumes: dict[str, int] = self._call("list_volumes")
        return volumes

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Give a host access."""
        info: base.ConnectionInfo = self._call("grant", volume, export)
        return info

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """End the access of a host."""
        self._call("revoke", volume, export, list(others))
