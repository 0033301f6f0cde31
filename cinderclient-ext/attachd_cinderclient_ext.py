# SPDX-License-Identifier: Apache-2.0
"""Lets ``cinder`` attach volumes to this host; cinderclient finds it by the end of its name."""

from attachd.cli import cinder
from attachd.cli.cinder import (
    do_get_connector,
    do_local_attach,
    do_local_detach,
    do_local_grow,
    do_local_list,
    do_local_restore,
    do_local_trim,
)

__all__ = [
    "do_get_connector",
    "do_local_attach",
    "do_local_detach",
    "do_local_grow",
    "do_local_list",
    "do_local_restore",
    "do_local_trim",
]


def __pre_parse_args__() -> None:  # noqa: N807 (the name that cinderclient calls)
    """Rename the commands that another extension has too, when all extensions are loaded."""
    cinder.rename_duplicates(globals())
