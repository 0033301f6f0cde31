# SPDX-License-Identifier: Apache-2.0
"""The configuration: one file per option group; every room reads CONF from here."""

from oslo_config import cfg

from attachd.conf import (
    agent,
    api,
    base,
    database,
    manager,
    messaging,
    notifications,
    nova,
    quota,
    upgrade_levels,
)

CONF = cfg.CONF
"""The process-wide configuration: oslo.messaging registers options on this one only."""

GROUPS = (
    base,
    agent,
    api,
    database,
    manager,
    messaging,
    notifications,
    nova,
    quota,
    upgrade_levels,
)

for _group in GROUPS:
    # By its name, oslo.config would make another group which only looks like [DEFAULT].
    _named = None if _group.GROUP == base.GROUP else _group.GROUP
    CONF.register_opts(_group.OPTIONS, group=_named)
