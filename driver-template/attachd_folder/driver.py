# SPDX-License-Identifier: Apache-2.0
"""Volumes as plain files in a folder, for hosts that share it; a template for drivers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
from pathlib import Path
from typing import Any

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base, folder_identity, sparse


class FolderDriver(base.Driver, abilities.Clone, abilities.Audit):
    """A file for each volume, and a symbolic link for each export.

    Nothing is promised: each program on a host can open the files.
    """

    VENDOR = "Example"
    SHARED_TARGETS = False  # no connections, so none that volumes could share
    OPTIONS = (
        cfg.StrOpt(
            "folder_path",
            default="$state_path/folder",
            help="The folder, under the same path on all hosts.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        folder = Path(self.options.folder_path).absolute()
        self._volumes = sparse.SparseFiles(folder / "volumes")
        self._exports = folder / "exports"

    def setup(self) -> None:
        """Create the folders; an error names the one that cannot be used."""
        self._volumes.prepare()
        sparse.make_folder(self._exports, 0o700)
        self.storage_ids = {self.name: folder_identity.read_identity(self._exports.parent)}

    def get_stats(self) -> base.BackendStats:
        """Return the capacity of the file system."""
        return dataclasses.replace(
            self._volumes.stats("file"),
            capabilities={"multiattach": True, "thin_provisioning": True},
        )

    def list_volumes(self) -> Mapping[str, int]:
        """List the files."""
        return self._volumes.sizes()

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create the file, unless it exists."""
        self._volumes.create(volume)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy the file of the source."""
        self._volumes.clone(volume, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete the file; refused while a host has an export."""
        if list(self.list_volume_exports(volume)):
            raise exception.BackendError(f"Volume {volume.id} is still exported.", final=True)
        self._volumes.delete(volume.id)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        """Extend the file."""
        self._volumes.extend(volume.id, size_gib)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without a name."""
        if not connector.get("host"):
            raise exception.InvalidInput(
                field="connector.host", value=None, reason="The host needs a name."
            )

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Link the file for one attachment."""
        try:
            self.check_connector(export.connector)
            self.check_access_mode(export.mode)
        except exception.InvalidInput as error:
            raise exception.BackendError(f"{error}", final=True) from error
        file, link = self._volumes.existing(volume.id), self._link(volume, export)
        if not link.is_symlink():
            base.check_still_owner()
            with sparse.map_os_errors(f"Volume {volume.id} could not be exported"):
                link.symlink_to(file)
        return {"driver_volume_type": "local", "data": {"device_path": f"{link}"}}

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove the link."""
        base.check_still_owner()
        with sparse.map_os_errors(f"Volume {volume.id} could not be withdrawn"):
            self._link(volume, export).unlink(missing_ok=True)

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List the links of each volume."""
        holders: dict[str, set[str]] = {}
        with sparse.map_os_errors(f"{self._exports} could not be listed"):
            for link in self._exports.iterdir():
                volume_id, _dot, attachment_id = link.name.partition(".")
                holders.setdefault(volume_id, set()).add(attachment_id)
        return [base.BackendExport(key, "rw", frozenset(ids)) for key, ids in holders.items()]

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterator[base.BackendExport]:
        """Return a list with a link for each export."""
        if exports:
            holders = frozenset(export.attachment_id for export in exports)
            yield base.BackendExport(volume.id, "rw", holders)

    def _link(self, volume: base.VolumeRef, export: base.Export) -> Path:
        names = sparse.plain_name(volume.id), sparse.plain_name(export.attachment_id)
        return self._exports / ".".join(names)
