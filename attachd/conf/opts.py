# SPDX-License-Identifier: Apache-2.0
"""Every option of attachd, for the generator of sample configurations."""

from typing import Any

from oslo_config import cfg
from stevedore import extension

from attachd import conf


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return (group, options) pairs, as the oslo.config.opts entry point wants them."""
    groups = [(group.GROUP, list(group.OPTIONS)) for group in conf.GROUPS]
    return groups + _backend_examples()


def _backend_examples() -> list[tuple[str, list[cfg.Opt]]]:
    """Show each driver's options under a group of the driver's name, as a backend might be."""
    drivers: extension.ExtensionManager[Any] = extension.ExtensionManager(
        "attachd.drivers", propagate_map_exceptions=True
    )
    return [
        (each.name, [conf.manager.DRIVER, *each.plugin.OPTIONS])
        for each in sorted(drivers, key=lambda found: found.name)
    ]
