# SPDX-License-Identifier: Apache-2.0
"""Options of the commands for this host, shared by all three programs.

local.py adds them for ``attachd`` and ``openstack``, cinder.py for ``cinder``.  Names of two words
are accepted with - and with _, as both were in use before.
"""

import argparse
from collections.abc import Iterable
import dataclasses
import json
import os
from pathlib import Path
import re
from typing import Any

from oslo_utils import strutils

from attachd.agent.journal import DEFAULT_STATE_PATH

STATE_PATH_VARIABLE = "ATTACHD_HOST_STATE_PATH"
"""Environment variable with the directory of this host's journal."""

_FILE_SYSTEM = re.compile(r"[a-z0-9][a-z0-9.]*")


def boolean(text: str) -> bool:
    """Parse True or False, as users write them."""
    try:
        return strutils.bool_from_string(text, strict=True)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither True nor False; an option without a value has to come last"
        ) from None


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("this is JSON, but not an object: {...} is expected")
    return value


def file_system(text: str) -> str:
    """Parse the name of a file system type, such as ext4."""
    if not _FILE_SYSTEM.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a file system, such as ext4")
    return text


def absolute(text: str) -> str:
    """Return an absolute path: a process in another working directory may use it."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return str(Path(text).absolute())


def host_state_path() -> str:
    """Return the default directory of the journal."""
    return os.environ.get(STATE_PATH_VARIABLE) or str(DEFAULT_STATE_PATH)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option or an argument.

    :ivar names: as they are typed; the first one names the value
    :ivar settings: for argparse's add_argument()
    """

    names: tuple[str, ...]
    settings: dict[str, Any]


def option(*names: str, **settings: Any) -> Option:
    """Describe an option; a name with - inside is accepted with _ as well."""
    spelled = [spelling for name in names for spelling in _spellings(name)]
    return Option(tuple(dict.fromkeys(spelled)), settings)


def _spellings(name: str) -> tuple[str, str]:
    dashes = len(name) - len(name.lstrip("-"))
    return name, name[:dashes] + name[dashes:].replace("-", "_")


def switch(*names: str, text: str) -> Option:
    """Describe an option that may be followed by True or False."""
    return option(
        *names,
        nargs="?",
        const=True,
        default=False,
        type=boolean,
        metavar="True|False",
        help=f"{text}; alone it means True, default: False",
    )


def add(parser: argparse.ArgumentParser, selected: Iterable[Option]) -> None:
    """Add options to a parser."""
    for item in selected:
        parser.add_argument(*item.names, **item.settings)


VOLUME = Option(("volume",), {"metavar": "VOLUME", "help": "name or ID of the volume"})
MODE = option(
    "--mode", choices=("rw", "ro"), help="whether the host may write; default: if it can"
)
CONNECTOR = (
    switch("--multipath", text="use all paths to the storage that there are"),
    switch(
        "--enforce-multipath",
        text="fail where multipathd does not run, rather than use a single path",
    ),
    option(
        "--nic",
        metavar="INTERFACE",
        help="the network interface whose address is sent to the storage; default: the kernel's "
        "routes decide",
    ),
)
HOST = (
    option(
        "--hostname",
        metavar="NAME",
        help="what this host is called in attachments; default: its host name",
    ),
    option(
        "--initiator",
        metavar="IQN",
        help="the iSCSI name of this host; default: that of the machine, or one made for it",
    ),
    option(
        "--connector-type",
        choices=("auto", "kernel", "user-space"),
        default="auto",
        help="how devices are made: by the kernel's initiators, by QEMU in user space, or auto: "
        "by the kernel where it can; default: auto",
    ),
    option(
        "--state-path",
        metavar="DIR",
        default=None,
        type=absolute,
        help="the directory where this host records what is attached; default: "
        f"${STATE_PATH_VARIABLE}, or {DEFAULT_STATE_PATH}",
    ),
)
ATTACH = (
    VOLUME,
    option(
        "--mountpoint",
        metavar="DIR",
        type=absolute,
        help="mount the volume's file system there; without it there is a device only",
    ),
    option(
        "--mkfs",
        metavar="TYPE",
        type=file_system,
        help="make a file system of this type first, such as ext4, if the volume holds no data: "
        "all of it is read, except holes",
    ),
    option(
        "--assume-empty",
        action="store_true",
        help="with --mkfs: do not read the volume, look only for file systems, partition tables "
        "and the like; for volumes known to be empty",
    ),
    option(
        "--allow-filesystem",
        action="append",
        default=[],
        metavar="TYPE",
        type=file_system,
        help="with --mountpoint: mount a volume with this file system as well, such as btrfs; may "
        "be repeated. Default: only ext2, ext3, ext4 and xfs, since the content of a volume can "
        "be made as an attack on the kernel",
    ),
    option(
        "--mount-options",
        default="",
        metavar="OPTIONS",
        help="with --mountpoint: further options of mount, with commas, such as noatime, or suid "
        "and dev, since a volume is mounted with nosuid and nodev",
    ),
    option(
        "--grow-fs",
        action="store_true",
        help="let the file system grow with the volume while it is mounted: ext4, xfs and btrfs; "
        "with --mkfs it does so anyway",
    ),
    option(
        "--mode",
        choices=("rw", "ro"),
        default="rw",
        help="whether this host may write: rw, or ro; default: rw",
    ),
    *CONNECTOR,
    *HOST,
)
DETACH = (
    VOLUME,
    option(
        "--attachment-id",
        "--attachment-uuid",
        metavar="ID",
        help="which attachment; needed only if the volume is attached here several times",
    ),
    option(
        "--device-info",
        metavar="JSON",
        type=json_object,
        help="the device as local-attach has shown it; needed only if this host has no note of it",
    ),
    *CONNECTOR[:2],
    Option(
        ("--force",),
        {
            "action": "store_true",
            "help": "detach although the device is in use, or data cannot be saved",
        },
    ),
    *HOST,
)
GROW = (
    VOLUME,
    option(
        "--grow-fs",
        action="store_true",
        help="let its file system grow also if local-attach had neither --grow-fs nor --mkfs",
    ),
    option(
        "--attachment-id",
        metavar="ID",
        help="which attachment; needed only if the volume is attached here several times",
    ),
    *HOST,
)
TRIM = (VOLUME, *HOST)
GET_CONNECTOR = (*CONNECTOR, *HOST)
RESTORE = (
    Option(
        ("--watch",),
        {
            "action": "store_true",
            "help": "go on, and attach again what loses its device, such as by the end of its "
            "storage daemon, and let grow what has grown in the service, until Ctrl-C",
        },
    ),
    *HOST,
)
LIST = (
    Option(("--long",), {"action": "store_true", "help": "show also who looks after each"}),
    Option(
        ("--watch",),
        {"action": "store_true", "help": "print the list again at each change, until Ctrl-C"},
    ),
    *HOST,
)
STRAYS = (
    Option(
        ("devices",),
        {
            "metavar": "DEVICE",
            "nargs": "*",
            "help": "with --clean: remove only these, each by a device or a target of the list; "
            "default: all",
        },
    ),
    Option(
        ("--clean",),
        {"action": "store_true", "help": "flush and disconnect the strays that are not in use"},
    ),
    Option(
        ("--force",),
        {
            "action": "store_true",
            "help": "with --clean: also those in use, or whose data cannot be saved",
        },
    ),
    option(
        "--prefix",
        action="append",
        default=[],
        metavar="TEXT",
        help="what the names of further targets of attachd begin with, up to the id of the "
        "volume, such as iqn.2030-01.org.example:volume-; may be repeated",
    ),
    *HOST,
)
