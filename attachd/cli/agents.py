# SPDX-License-Identifier: Apache-2.0
"""Commands for agents, which attach volumes to their hosts on request."""

import argparse
from typing import Final

from attachd.cli import descriptions, formatting
from attachd.cli.blockstorage import BlockStorage
from attachd.cli.commands import BatchCommand, Describe, Lister
from attachd.cli.options import Option
from attachd.cli.table_layout import Layout

_HOST: Final = Option(("host",), {"metavar": "HOST", "help": "name of the host"})
_COLUMNS: Final = {
    "Host": "host",
    "State": "state",
    "Last Seen": "last_seen",
    "Age": "age",
    "Connector Type": "connector_type",
    "Max Attachments": "max_attachments",
    "Error": "error",
}


class ListAgents(Lister):
    """List the hosts that have an agent, with the age of its last report."""

    layout = Layout(
        ("Host", "State", "Age", "Last Seen", "Connector Type", "Max Attachments"),
        ("Max Attachments", "Last Seen", "Connector Type"),
    )

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002 (cliff gives it to every command)
    ) -> formatting.Listed:
        """Return the agents."""
        rows = [
            {
                **agent,
                "age": formatting.Age(agent["last_seen"]),
                "last_seen": formatting.Time(agent["last_seen"]),
            }
            for agent in BlockStorage(self.connection).agents()
        ]
        return formatting.listed(rows, _COLUMNS)


class ShowAgent(Describe):
    """Show the agent of a host: its state, its host's connector, its attachments."""

    arguments = (_HOST,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the agent."""
        found = BlockStorage(self.connection).agent(parsed_args.host)
        if self.is_for_people(parsed_args):
            return formatting.shown(descriptions.agent(found))
        return formatting.shown(formatting.without_secrets(found))


class DeleteAgents(BatchCommand):
    """Delete the agents of hosts without attachments, and their keys."""

    arguments = (Option(("hosts",), {"metavar": "HOST", "nargs": "+", "help": "name of a host"}),)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Delete each agent."""
        return self.run_each(parsed_args.hosts, BlockStorage(self.connection).delete_agent)
