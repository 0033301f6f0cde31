# SPDX-License-Identifier: Apache-2.0
"""The configuration: one file per option group; all modules read CONF from here."""

import importlib
from typing import Any, Final

from oslo_config import cfg

from attachd.conf import base, checking, manager

__all__ = ["CONF", "GROUPS", "base", "checking", "manager"]

CONF = cfg.CONF
"""The process-wide configuration: oslo.messaging registers options on this one only."""

_OTHERS = (
    "agent",
    "api",
    "database",
    "events",
    "glance",
    "metrics",
    "notifications",
    "nova",
    "quota",
    "rpc",
    "secrets",
    "ui",
    "upgrade_levels",
)

GROUPS: Final[tuple[Any, ...]] = (
    base,
    manager,
    *(importlib.import_module(f"{__name__}.{name}") for name in _OTHERS),
)
"""The modules of this package that have options: a GROUP and its OPTIONS each."""

for _group in GROUPS:
    # By its name, oslo.config would make another group which only looks like [DEFAULT].
    _named = None if _group.GROUP == base.GROUP else _group.GROUP
    CONF.register_opts(_group.OPTIONS, group=_named)
