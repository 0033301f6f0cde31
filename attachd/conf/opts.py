# SPDX-License-Identifier: Apache-2.0
"""All options of attachd, for the generator of sample configurations."""

from typing import Any

from oslo_config import cfg
from stevedore import extension

from attachd import conf


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options) pairs, as the oslo.config.opts entry point wants them."""
    groups = [(_explained(group), list(group.OPTIONS)) for group in conf.GROUPS]
    return groups + _backend_examples()


def _explained(module: Any) -> cfg.OptGroup:
    """Return the group of a module, with what the module's first line says it is about."""
    about = " ".join((module.__doc__ or "").partition(";")[0].split())
    return cfg.OptGroup(module.GROUP, help=f"{about}.")


def _backend_examples() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Show each driver's options under a group of the driver's name, as a backend might be."""
    drivers: extension.ExtensionManager[Any] = extension.ExtensionManager(
        "attachd.drivers", propagate_map_exceptions=True
    )
    return [
        (
            cfg.OptGroup(
                driver.name,
                help=f"A backend with the driver {driver.name}; the group may have any name that "
                "enabled_backends has.",
            ),
            [*conf.manager.BACKEND_OPTIONS, *driver.plugin.OPTIONS],
        )
        for driver in sorted(drivers, key=lambda found: found.name)
    ]
