# SPDX-License-Identifier: Apache-2.0
"""Creation of drivers with options, for their unit tests."""

from typing import Any, TypeVar

from oslo_config import cfg

from attachd.conf import base as base_conf
from attachd.drivers import base

GROUP = "backend"

AnyDriver = TypeVar("AnyDriver", bound=base.Driver)


def driver(plugin: type[AnyDriver], **options: Any) -> AnyDriver:
    """Create a driver as the manager does, without setup()."""
    conf = cfg.ConfigOpts()
    conf([], project="attachd", default_config_files=[])
    conf.register_opts(base_conf.OPTIONS)
    conf.register_group(cfg.OptGroup(GROUP))
    conf.register_opts(plugin.OPTIONS, group=GROUP)
    for name, value in options.items():
        conf.set_override(name, value, group=GROUP)
    return plugin(GROUP, conf)
