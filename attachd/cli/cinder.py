# SPDX-License-Identifier: Apache-2.0
"""Commands for this host as an extension of ``cinder``; see cinderclient-ext/ of the sources.

cinderclient looks for modules whose names end with ``cinderclient_ext``, and makes a command of
each ``do_...`` in them.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, MutableMapping
import sys
from typing import Any, Final

from cinderclient import shell_utils
from cinderclient.contrib import noauth
from keystoneauth1 import plugin
from openstack import connection

from attachd import exception
from attachd.cli import clouds, local, options
from attachd.cli.commands import split_errors
from attachd.client.service import readable_errors

ENDING: Final = "cinderclient_ext"
"""Suffix by which cinderclient finds an extension."""
OWN: Final = "do_attachd_"
"""Prefix of a command whose plain name another extension has."""

Command = Callable[[Any, argparse.Namespace], None]


def _takes(accepted: Iterable[options.Option]) -> Callable[[Command], Command]:
    """Declare the options of a command for cinderclient."""

    def note(command: Command) -> Command:
        vars(command)["arguments"] = [(item.names, item.settings) for item in accepted]
        return command

    return note


@_takes(options.GET_CONNECTOR)
def do_get_connector(client: Any, args: argparse.Namespace) -> None:
    """Shows what this host is to a storage backend."""
    shell_utils.print_dict(local.get_connector(cloud(client), args))


@_takes(options.ATTACH)
def do_local_attach(client: Any, args: argparse.Namespace) -> None:
    """Attaches a volume to this host and shows its device."""
    shell_utils.print_dict(local.attach(cloud(client), args))


@_takes(options.GROW)
def do_local_grow(client: Any, args: argparse.Namespace) -> None:
    """Lets the device of a volume of this host have the size of the volume."""
    shell_utils.print_dict(local.grow(cloud(client), args))


@_takes(options.TRIM)
def do_local_trim(client: Any, args: argparse.Namespace) -> None:
    """Frees the blocks that the file system of a volume of this host does not use."""
    shell_utils.print_dict(local.trim(cloud(client), args))


@_takes(options.DETACH)
def do_local_detach(client: Any, args: argparse.Namespace) -> None:
    """Detaches a volume from this host."""
    local.detach(cloud(client), args)


@_takes(options.LIST)
def do_local_list(client: Any, args: argparse.Namespace) -> None:
    """Lists what is attached to this host, and interrupted operations."""
    for found in local.watch_attached(cloud(client), args):
        _print(found, long=args.long)


@_takes(options.RESTORE)
def do_local_restore(client: Any, args: argparse.Namespace) -> None:
    """Attaches again what was attached to this host before it was started anew."""
    if args.watch:
        local.supervise(cloud(client), args)
    found = local.restore(cloud(client), args)
    _print(found)
    if local.failed(found):
        raise exception.HostError(reason="Not all could be attached again: see Error.")


def cloud(client: Any) -> connection.Connection:
    """Return openstacksdk's connection to cinderclient's service, as its user.

    :param client: cinderclient's
    """
    adapter = client.client
    with readable_errors():
        endpoint = adapter.get_endpoint()
    session = adapter.session
    if isinstance(session.auth, noauth.CinderNoAuthPlugin):
        # It leaves out its parent's part.
        plugin.BaseAuthPlugin.__init__(session.auth)
    return connection.Connection(
        session=session,
        block_storage_endpoint_override=endpoint,
        app_name=clouds.NAME,
    )


def rename_duplicates(own: MutableMapping[str, Any]) -> None:
    """Rename commands that another extension has as well: duplicates break all of ``cinder``.

    :param own: the names of attachd's module
    """
    others = set(_names(vars(module) for module in _others(own["__name__"])))
    for name in [name for name in own if name.startswith("do_")]:
        if name in others:
            own[name.replace("do_", OWN, 1)] = own.pop(name)


def _others(own: str) -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if module is not None and name.endswith(ENDING) and name != own and "." not in name:
            yield module


def _names(modules: Iterable[dict[str, Any]]) -> Iterator[str]:
    for names in modules:
        yield from names


def _print(found: Iterable[dict[str, Any]], *, long: bool = False) -> None:
    names, rows, errors = split_errors(*local.listed(found, long=long))
    lines = [dict(zip(names, row, strict=True)) for row in rows]
    shell_utils.print_list(lines, list(names), sortby_index=None)
    sys.stdout.writelines(f"{line}\n" for line in errors)
