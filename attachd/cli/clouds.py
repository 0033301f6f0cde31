# SPDX-License-Identifier: Apache-2.0
"""Which cloud is meant, and as whom, from options, environment and clouds.yaml; used by app.py.

All of it is openstacksdk's, so it is as people know it from the ``openstack`` command.
"""

import argparse
from collections.abc import Sequence
import functools
import getpass
from importlib import metadata
import sys

from keystoneauth1 import exceptions as transport
from openstack import config, connection, exceptions

NAME = "attachd"


class Cloud:
    """A cloud that is connected to when somebody needs it.

    :ivar options: of the command line, once they are known
    """

    def __init__(self) -> None:
        self.options: argparse.Namespace | None = None
        self._config = config.OpenStackConfig(
            app_name=NAME, app_version=metadata.version(NAME), pw_func=_ask
        )

    def add_options(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
        """Let a parser know the options; which there are depends on what is typed.

        :param words: the command line
        :raises openstack.exceptions.ConfigException: no such cloud, or kind of authentication
        """
        # It gets a list of its own: all names of options in it are changed.
        self._config.register_argparse_arguments(parser, list(words))

    @functools.cached_property
    def sdk_connection(self) -> connection.Connection:
        """The connection, by the name that it has in the ``openstack`` command.

        :raises openstack.exceptions.SDKException: what was said does not suffice
        """
        try:
            region = self._config.get_one(argparse=self.options)
        except transport.MissingRequiredOptions as error:
            raise exceptions.ConfigException(
                f"{error}. Name a cloud with --os-cloud or OS_CLOUD, or set the variables OS_... "
                "of yours."
            ) from error
        return connection.Connection(config=region)

    def close(self) -> None:
        """End what was begun."""
        if "sdk_connection" in vars(self):
            self.sdk_connection.close()


def _ask(prompt: str | None = None) -> str:
    """Ask for a password, where somebody can answer."""
    if not sys.stdin.isatty():
        return ""
    return getpass.getpass(prompt or "Password: ")
