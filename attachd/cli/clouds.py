# SPDX-License-Identifier: Apache-2.0
"""Selection of a cloud by options, environment and clouds.yaml; used by app.py.

It is openstacksdk's, as in the ``openstack`` command.
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
    """A cloud, connected at the first use.

    :ivar options: of the command line, once they are parsed
    """

    def __init__(self) -> None:
        self.options: argparse.Namespace | None = None
        self._config = config.OpenStackConfig(
            app_name=NAME, app_version=metadata.version(NAME), pw_func=_ask
        )

    def add_options(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
        """Add the options to a parser; they depend on the selected kind of authentication.

        :param words: the command line
        :raises openstack.exceptions.ConfigException: unknown cloud, or kind of authentication
        """
        # It gets a list of its own: all names of options in it are changed.
        self._config.register_argparse_arguments(parser, list(words))

    @functools.cached_property
    def sdk_connection(self) -> connection.Connection:
        """The connection, under the name that the ``openstack`` command uses.

        :raises openstack.exceptions.SDKException: the options do not suffice
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
        """Close the connection, if there is one."""
        if "sdk_connection" in vars(self):
            self.sdk_connection.close()


def _ask(prompt: str | None = None) -> str:
    """Prompt for a password, on a terminal."""
    if not sys.stdin.isatty():
        return ""
    return getpass.getpass(prompt or "Password: ")
