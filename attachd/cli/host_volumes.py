# SPDX-License-Identifier: Apache-2.0
"""Commands that attach several volumes on a host, or detach them, by one request."""

import argparse
from collections.abc import Iterable, Sequence
import functools
from typing import Any, Final

from openstack import exceptions

from attachd.cli import agent_wait, formatting, options
from attachd.cli.blockstorage import BlockStorage
from attachd.cli.commands import ERROR, Lister
from attachd.cli.options import Option, option

_HOST: Final = Option(("host",), {"metavar": "HOST", "help": "name of the host; see agent-list"})
_VOLUMES: Final = Option(
    ("volumes",), {"metavar": "VOLUME", "nargs": "+", "help": "name or ID of a volume"}
)
_COLUMNS: Final = {
    "Volume ID": "volume_id",
    "Attachment ID": "attachment_id",
    "Status": "status",
    "Device": "device",
    ERROR: "error",
}


class _SetCommand(Lister):
    """A command whose request has a result for each volume."""

    _failed = False

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Return the exit code: 1 if one of the volumes has failed."""
        return int(super().run(parsed_args) or self._failed)

    def list_results(self, results: Iterable[dict[str, Any]]) -> formatting.Listed:
        """Return the results, with the messages of their errors."""
        rows = [{**item, "error": (item["error"] or {}).get("message")} for item in results]
        self._failed = any(row["error"] for row in rows)
        return formatting.listed(rows, _COLUMNS)


class AttachVolumes(_SetCommand):
    """Have the agent of a host attach volumes there, all at the same time.

    The result of each volume is shown; the exit code is 1 if one has failed. With --all-or-none
    no volume stays attached then, and the error of that one is shown.
    """

    arguments = (
        _HOST,
        _VOLUMES,
        options.MODE,
        option(
            "--all-or-none",
            action="store_true",
            help="if one volume cannot be attached, attach none",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Attach the volumes."""
        storage = BlockStorage(self.connection)
        asked: dict[str, Any] = {
            "host": parsed_args.host,
            "volumes": [
                {"volume_uuid": storage.volume_id(name)}
                | ({"mode": parsed_args.mode} if parsed_args.mode else {})
                for name in parsed_args.volumes
            ],
            "atomic": parsed_args.all_or_none,
        }
        step = functools.partial(agent_wait.describe, storage, parsed_args.host)
        with self.waiting(step, agent_wait.ADVICE):
            results = storage.attach_set(asked)
        return self.list_results(results)


class DetachVolumes(_SetCommand):
    """Have the agent of a host detach volumes from it, all at the same time.

    The result of each volume is shown; the exit code is 1 if one has failed.
    """

    arguments = (_HOST, _VOLUMES)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Detach the volumes."""
        storage = BlockStorage(self.connection)
        volumes = [storage.volume_id(name) for name in parsed_args.volumes]
        attached = storage.attachments({"agent": parsed_args.host})
        selected = _select(attached, volumes, parsed_args.host)
        step = functools.partial(agent_wait.describe, storage, parsed_args.host)
        with self.waiting(step, agent_wait.ADVICE):
            results = storage.detach_set(selected)
        return self.list_results(results)


def _select(attached: Sequence[dict[str, Any]], volumes: Sequence[str], host: str) -> list[str]:
    """Return the ids of the attachments of volumes.

    :raises NotFoundException: one is not attached
    """
    found = {item["volume_id"]: item["id"] for item in attached}
    missing = [volume_id for volume_id in volumes if volume_id not in found]
    if missing:
        raise exceptions.NotFoundException(
            f"The agent of host {host} has not attached volume {', '.join(missing)}. Nothing was "
            "detached."
        )
    return [found[volume_id] for volume_id in volumes]
