# SPDX-License-Identifier: Apache-2.0
"""Commands for agents, which attach volumes to their hosts on request."""

import argparse
from typing import Final

from attachd.cli import formatting
from attachd.cli.blockstorage import BlockStorage
from attachd.cli.commands import BatchCommand, Lister, ShowOne
from attachd.cli.options import Option

_HOST: Final = Option(("host",), {"metavar": "HOST", "help": "name of the host"})
_COLUMNS: Final = {
    "Host": "host",
    "State": "state",
    "Last Seen": "last_seen",
    "Connector Type": "connector_type",
    "Max Attachments": "max_attachments",
    "Error": "error",
}


class ListAgents(Lister):
    """List the hosts that have an agent."""

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002 (cliff gives it to every command)
    ) -> formatting.Listed:
        """Return the agents."""
        return formatting.listed(BlockStorage(self.connection).agents(), _COLUMNS)


class ShowAgent(ShowOne):
    """Show the agent of a host: its state, its host's connector, its attachments."""

    arguments = (_HOST,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the agent."""
        found = BlockStorage(self.connection).agent(parsed_args.host)
        return formatting.shown(formatting.without_secrets(found))


class DeleteAgents(BatchCommand):
    """Delete the agents of hosts without attachments, and their keys."""

    arguments = (Option(("hosts",), {"metavar": "HOST", "nargs": "+", "help": "name of a host"}),)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Delete each agent."""
        return self.run_each(parsed_args.hosts, BlockStorage(self.connection).delete_agent)
