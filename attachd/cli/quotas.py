# SPDX-License-Identifier: Apache-2.0
"""Commands for the quota of attachments of a project, which other clients do not know."""

import argparse
from typing import Any, Final

from keystoneauth1 import exceptions as transport
from openstack import exceptions
from oslo_utils import uuidutils

from attachd.cli import formatting
from attachd.cli.blockstorage import UNLIMITED, Quotas
from attachd.cli.commands import ShowOne
from attachd.cli.options import Option, option

_PROJECT: Final = Option(("project",), {"metavar": "PROJECT", "help": "name or ID of the project"})


def limit(text: str) -> int:
    """Parse a limit; a type for argparse."""
    if text == "unlimited":
        return UNLIMITED
    if not (text.isascii() and text.removeprefix("-").isdigit() and int(text) >= UNLIMITED):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of 0 or more, nor -1 or unlimited"
        )
    return int(text)


class _QuotaCommand(ShowOne):
    """A command for the quota of a project."""

    def project_id(self, name_or_id: str) -> str:
        """Return the id of a project; a name is looked up in the Identity service.

        :raises NotFoundException: there is no project of this name
        """
        if uuidutils.is_uuid_like(name_or_id):
            return name_or_id
        try:
            identity: Any = self.connection.identity
            found = identity.find_project(name_or_id)
        except (exceptions.SDKException, transport.ClientException) as error:
            reason = f"{error}".partition(", ")[0].rstrip(".")
            raise exceptions.SDKException(
                f"Project {name_or_id} cannot be looked up: {reason}. Give its ID."
            ) from error
        if found is None:
            raise exceptions.NotFoundException(f"There is no project {name_or_id}.")
        return str(found.id)


class ShowQuota(_QuotaCommand):
    """Show how many attachments a project may have, and how many it has; -1: any number."""

    arguments = (_PROJECT,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the limit and its use."""
        project_id = self.project_id(parsed_args.project)
        found = Quotas(self.connection).attachment_quota(project_id)
        return formatting.shown({"project_id": project_id, **found})


class SetQuota(_QuotaCommand):
    """Set how many attachments a project may have."""

    arguments = (
        _PROJECT,
        Option(
            ("limit",),
            {"metavar": "LIMIT", "type": limit, "help": "the number, or unlimited, which is -1"},
        ),
        option(
            "--force", action="store_true", help="also if the project has more of them already"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Set the limit, and return it with its use."""
        project_id = self.project_id(parsed_args.project)
        storage = Quotas(self.connection)
        storage.set_attachment_quota(project_id, parsed_args.limit, force=parsed_args.force)
        return formatting.shown({"project_id": project_id, **storage.attachment_quota(project_id)})
