# SPDX-License-Identifier: Apache-2.0
"""Commands for this host: attach, grow, detach, list, restore and connector.

``attachd`` and ``openstack`` run them as they are; cinder.py uses their functions.
"""

import argparse
from collections.abc import Iterable, Iterator
import dataclasses
import os
from pathlib import Path
import socket
import sys
import time
from typing import Any, Final

from openstack import connection

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Owner
from attachd.agent.mount.mount_rules import MountRules
from attachd.cli import formatting, options
from attachd.cli.commands import Command, Lister, ShowOne
from attachd.cli.progress import Progress
from attachd.cli.table_layout import Layout
from attachd.client import Client, doctor, strays
from attachd.client.service import Service

ADVICE: Final = (
    "If it does not end: Ctrl-C is safe, as each step is in the journal of this host. 'attachd "
    "local-list' shows the step, and the same command again continues."
)
COLUMNS: Final = {
    "Name": "name",
    "Volume ID": "volume_id",
    "Attachment ID": "attachment_id",
    "Device": "path",
    "Mountpoint": "mountpoint",
    "Mode": "mode",
    "Step": "step",
    "Present": "present",
    "Status": "status",
    "Growth": "growth",
    "Error": "error",
}
"""Columns of a list of this host's attachments, and their fields."""
_LAYOUT: Final = Layout(
    (),
    (
        *("Growth", "Mode", "Step", "Attachment ID", "Mountpoint", "Present", "Volume ID"),
        "Device",
    ),
)
_CHECKS: Final = {"Check": "name", "Result": "result", "Missing": "remedy"}
_STRAYS: Final = {
    "Device": "device",
    "Kind": "kind",
    "Target": "target",
    "Reason": "reason",
    "State": "state",
    "Error": "error",
}
_WATCH_INTERVAL: Final = 2.0
"""Seconds between two checks of local-list --watch."""
DETAILS: Final = {
    "Owner": "owner",
    "Link": "link",
    "Size": "size_bytes",
    "File System": "filesystem",
    "File System Size": "filesystem_bytes",
    "Published": "published",
}
"""Additional columns with --long."""


def get_connector(cloud: connection.Connection, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the connector properties of this host.

    :param parsed: options of options.GET_CONNECTOR
    """
    with Progress(sys.stderr, ADVICE) as progress:
        return dict(client(cloud, parsed, progress).get_connector(_connecting(parsed)))


def attach(cloud: connection.Connection, parsed: argparse.Namespace) -> dict[str, Any]:
    """Attach a volume to this host.

    :param parsed: options of options.ATTACH
    :returns: the device, with the values that a detach needs
    """
    with Progress(sys.stderr, ADVICE) as progress:
        attached = client(cloud, parsed, progress).attach(
            parsed.volume,
            mode=parsed.mode,
            mountpoint=parsed.mountpoint,
            mkfs=parsed.mkfs,
            assume_empty=parsed.assume_empty,
            mount_rules=MountRules(tuple(parsed.allow_filesystem), parsed.mount_options),
            grow_fs=parsed.grow_fs,
            options=_connecting(parsed),
        )
    return _values(attached)


def grow(cloud: connection.Connection, parsed: argparse.Namespace) -> dict[str, Any]:
    """Let a volume of this host have its present size.

    :param parsed: options of options.GROW
    """
    with Progress(sys.stderr, ADVICE) as progress:
        return _values(
            client(cloud, parsed, progress).grow(
                parsed.volume, attachment_id=parsed.attachment_id, grow_fs=parsed.grow_fs
            )
        )


def trim(cloud: connection.Connection, parsed: argparse.Namespace) -> dict[str, Any]:
    """Free the blocks that the file system of a volume does not use.

    :param parsed: options of options.TRIM
    """
    with Progress(sys.stderr, ADVICE) as progress:
        return {"trimmed_bytes": client(cloud, parsed, progress).trim(parsed.volume)}


def detach(cloud: connection.Connection, parsed: argparse.Namespace) -> None:
    """Detach a volume from this host.

    :param parsed: options of options.DETACH
    """
    given = parsed.multipath or parsed.enforce_multipath
    with Progress(sys.stderr, ADVICE) as progress:
        client(cloud, parsed, progress).detach(
            parsed.volume,
            attachment_id=parsed.attachment_id,
            device_info=parsed.device_info,
            # Otherwise it is detached with the options of its attach.
            options=_connecting(parsed) if given else None,
            force=parsed.force,
        )


def attached(cloud: connection.Connection, parsed: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the attachments on this host.

    :param parsed: options of options.HOST
    """
    with Progress(sys.stderr, ADVICE) as progress:
        return [_values(attachment) for attachment in client(cloud, parsed, progress).attached()]


def watch_attached(
    cloud: connection.Connection, parsed: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """Yield the attachments on this host; with ``--watch`` again at each change.

    :param parsed: options of options.LIST
    """
    former = None
    while True:
        found = attached(cloud, parsed)
        if found != former:
            yield found
        if not parsed.watch:
            return
        former = found
        time.sleep(_WATCH_INTERVAL)


def restore(cloud: connection.Connection, parsed: argparse.Namespace) -> list[dict[str, Any]]:
    """Restore the attachments on this host, such as after a reboot.

    :param parsed: options of options.HOST
    """
    with Progress(sys.stderr, ADVICE) as progress:
        return [_values(attachment) for attachment in client(cloud, parsed, progress).restore()]


def supervise(cloud: connection.Connection, parsed: argparse.Namespace) -> None:
    """Restore what loses its device, until this is interrupted.

    :param parsed: options of options.HOST
    """
    with Progress(sys.stderr, ADVICE) as progress:
        client(cloud, parsed, progress).supervise()


def failed(found: Iterable[dict[str, Any]]) -> bool:
    """Return whether a restore has failed for an attachment that is not the agent's."""
    return any(attachment["error"] and attachment["owner"] == Owner.LOCAL for attachment in found)


def client(cloud: connection.Connection, parsed: argparse.Namespace, progress: Progress) -> Client:
    """Return the client for the host that options describe.

    :raises MissingRequirements: the caller is not root, which attaching and listing need
    """
    host = host_of(parsed)
    check_root(host)
    return Client(cloud, host, progress=progress)


def check_root(host: Host) -> None:
    """Check the rights of the caller; raises MissingRequirements."""
    if os.geteuid() != 0:
        what = "the rights of root (run it with sudo)"
        raise exception.MissingRequirements(host=host.identity.name, what=what)


def host_of(parsed: argparse.Namespace) -> Host:
    """Return the host that options describe."""
    identity = Identity(parsed.hostname or socket.gethostname(), parsed.initiator)
    state_path = Path(parsed.state_path or options.host_state_path())
    return Host(identity, state_path, connector_type=parsed.connector_type)


def _connecting(parsed: argparse.Namespace) -> Options:
    return Options(parsed.multipath, parsed.enforce_multipath, getattr(parsed, "nic", None))


def _values(found: Any) -> dict[str, Any]:
    """Return the fields of an attachment without secrets."""
    return formatting.without_secrets(dataclasses.asdict(found))


class GetConnector(ShowOne):
    """Show what this host is to a storage backend."""

    arguments = options.GET_CONNECTOR

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the connector properties."""
        return formatting.shown(get_connector(self.connection, parsed_args))


class LocalAttach(ShowOne):
    """Attach a volume to this host, and show its device.

    It takes root. If it fails, it undoes its changes, or names those that remain.
    """

    arguments = options.ATTACH

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Attach the volume."""
        if parsed_args.mkfs is not None and parsed_args.mode == "ro":
            self.refuse("argument --mkfs: not allowed with --mode ro")
        if parsed_args.assume_empty and parsed_args.mkfs is None:
            self.refuse("argument --assume-empty: only with --mkfs")
        given = parsed_args.allow_filesystem or parsed_args.mount_options or parsed_args.grow_fs
        if given and parsed_args.mountpoint is None:
            self.refuse("argument --mountpoint: missing, for the options of a mount")
        return formatting.shown(attach(self.connection, parsed_args))


class LocalDetach(Command):
    """Unmount a volume, take its device away from this host, and free it.

    It takes root. What is left of an attach or detach that failed is cleaned up as well.
    """

    arguments = options.DETACH

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Detach the volume."""
        detach(self.connection, parsed_args)


class LocalGrow(ShowOne):
    """Let the device of a volume of this host have the size of the volume.

    It takes root. The file system grows, too, if local-attach had --grow-fs or --mkfs, or with
    --grow-fs; it has to be mounted.
    """

    arguments = options.GROW

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Let it grow."""
        return formatting.shown(grow(self.connection, parsed_args))


class LocalTrim(ShowOne):
    """Free the blocks that the file system of a volume of this host does not use.

    It takes root. The file system has to be mounted for writing, and the storage has to free what
    is discarded.
    """

    arguments = options.TRIM

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Free them, and show how many bytes were discarded."""
        return formatting.shown(trim(self.connection, parsed_args))


class LocalList(Lister):
    """List what is attached to this host, and interrupted operations.

    Step is the last step that was started, Present whether the device is there, and Status the
    status of the attachment in the service. Growth says how the file system is smaller than its
    device. Errors are below the table.
    """

    arguments = options.LIST
    layout = _LAYOUT
    long_layout = _LAYOUT

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Return the attachments, after all former lists of a watch."""
        for found in watch_attached(self.connection, parsed_args):
            result = listed(found, long=parsed_args.long)
            if parsed_args.watch:
                self.produce_output(parsed_args, *result)
                self.app.stdout.flush()
        return result


class HostDoctor(Lister):
    """Check whether this host can attach volumes, and what is missing.

    Nothing is changed, except that the user-space connector creates a missing iSCSI name.
    "not used" is no obstacle: only such volumes need it. The exit code is 1 if something is
    missing.
    """

    _failed = False

    arguments = options.HOST

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Return the checks."""
        checks = doctor.diagnose(host_of(parsed_args), Service(self.connection))
        self._failed = not doctor.can_attach(checks)
        return formatting.listed(map(dataclasses.asdict, checks), _CHECKS)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the list; return the exit code."""
        return super().run(parsed_args) or int(self._failed)


class HostStrays(Lister):
    """List devices of this host whose target attachd exports, and that no attachment wants.

    Such as after a fence, a forced detach, or the loss of the journal. It takes root, and a user
    that may see hosts. --clean disconnects those that are not in use. Error names the users of a
    device, or the reason of a failure; the exit code is 1 if strays are left.
    """

    _left = False

    arguments = options.STRAYS

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Return the strays, after they are removed if that is asked for."""
        if (parsed_args.devices or parsed_args.force) and not parsed_args.clean:
            self.refuse("argument --clean: DEVICE and --force are only allowed with it")
        host = host_of(parsed_args)
        check_root(host)
        finder = strays.StrayFinder(
            host,
            Service(self.connection),
            parsed_args.prefix,
            is_named=parsed_args.hostname is not None,
        )
        if parsed_args.clean:
            found = finder.clean(parsed_args.devices, force=parsed_args.force)
        else:
            found = finder.find()
        self._left = any(stray.state not in strays.CLEANED for stray in found)
        return formatting.listed(map(_stray_values, found), _STRAYS)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the list; return the exit code."""
        return super().run(parsed_args) or int(self._left)


def _stray_values(stray: strays.Stray) -> dict[str, Any]:
    device = stray.device
    return {
        "kind": f"{device.kind}",
        "device": " ".join(device.devices) or None,
        "target": device.target,
        "reason": stray.reason,
        "state": f"{stray.state}",
        "error": stray.error,
    }


class LocalRestore(Lister):
    """Attach again what was attached to this host before it was started anew.

    Interrupted operations are finished or undone. It takes root. Error says why a volume could
    not be attached; then the exit code is 1.
    """

    _failed = False

    arguments = options.RESTORE
    layout = _LAYOUT

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Restore the attachments."""
        if parsed_args.watch:
            supervise(self.connection, parsed_args)
        found = restore(self.connection, parsed_args)
        self._failed = failed(found)
        return listed(found)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the list; return the exit code."""
        return super().run(parsed_args) or int(self._failed)


def listed(found: Iterable[dict[str, Any]], *, long: bool = False) -> formatting.Listed:
    """Return headings and lines.

    :param long: with all columns
    """
    return formatting.listed(found, COLUMNS | (DETAILS if long else {}))
