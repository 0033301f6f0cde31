# SPDX-License-Identifier: Apache-2.0
"""Commands for fencing hosts: ending their access to all volumes, with the backend's proof."""

import argparse
from typing import Final

from attachd.cli import formatting
from attachd.cli.blockstorage import BlockStorage
from attachd.cli.commands import BatchCommand, Lister, ShowOne
from attachd.cli.options import Option, option

_HOST: Final = Option(("host",), {"metavar": "HOST", "help": "name of the host"})
_HOSTS: Final = Option(("hosts",), {"metavar": "HOST", "nargs": "+", "help": "name of a host"})
_COLUMNS: Final = {
    "Host": "host",
    "Fenced At": "fenced_at",
    "Reason": "reason",
    "Agent State": "agent_state",
    "Attachments": "attachment_ids",
}
_RESULTS: Final = {
    "Attachment ID": "attachment_id",
    "Volume ID": "volume_id",
    "Instance ID": "instance_uuid",
    "Result": "result",
    "Error": "reason",
}
_DONE: Final = frozenset({"proved", "asserted"})


class FenceHost(Lister):
    """End the access of a host to all volumes, and keep it from attaching any.

    The host takes no part: it may be dead or hang. Of each of its attachments the result is shown:
    "proved", if the backend lists neither the host nor a session of it; "asserted", if the backend
    says that its access has ended and cannot list it; "pending", if that goes on; or "failed". The
    exit code is 1 as long as some are pending or have failed: run the command again.
    """

    arguments = (
        _HOST,
        option("--reason", metavar="TEXT", required=True, help="why; it is recorded"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Fence the host."""
        results = BlockStorage(self.connection).fence(parsed_args.host, parsed_args.reason)
        self._unfinished = any(item["result"] not in _DONE for item in results)
        return formatting.listed(results, _RESULTS)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Fence the host and return the exit code."""
        return int(super().run(parsed_args) or self._unfinished)


class UnfenceHosts(BatchCommand):
    """Lift the fences of hosts that were checked: volumes can be attached there again."""

    arguments = (_HOSTS,)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Lift each fence."""
        return self.run_each(parsed_args.hosts, BlockStorage(self.connection).unfence)


class ListHosts(Lister):
    """List the hosts that are fenced."""

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002 (cliff gives it to every command)
    ) -> formatting.Listed:
        """Return the hosts."""
        return formatting.listed(BlockStorage(self.connection).hosts(), _COLUMNS)


class ShowHost(ShowOne):
    """Show whether a host is fenced, and its attachments that give it access to volumes."""

    arguments = (_HOST,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the host."""
        return formatting.shown(BlockStorage(self.connection).host(parsed_args.host))
