# SPDX-License-Identifier: Apache-2.0
"""Start a process: read the configuration, check it, and start logging."""

from collections.abc import Mapping, Sequence
import gc
from importlib import metadata
import logging as std_logging
import os
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging

from attachd.conf import CONF, checking
from attachd.telemetry import log_format

LOG = logging.getLogger(__name__)

EXCHANGE = "attachd"
CONFIG_FILES_VARIABLE = "ATTACHD_CONFIG_FILES"
"""Names configuration files, separated by colons, where there is no command line."""

GC_THRESHOLD = 10_000
"""Number of new objects that start a garbage collection; Python's default is 700.

With requests of many threads in progress most of 700 objects are still in use: scanning them took
a twentieth of the API's CPU.
"""


def version() -> str:
    """Return attachd's own version, as installed."""
    return metadata.version("attachd")


def prepare(
    argv: Sequence[str],
    config_files: list[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Read the configuration and start logging; every process does it first, once.

    :param argv: the command line without the program's name
    :param config_files: what to read where the command line names no file; None: what
        ATTACHD_CONFIG_FILES names, else attachd.conf in the usual places
    :param defaults: options of the [DEFAULT] group that have another default here
    :raises oslo_config.cfg.Error: a file cannot be read, or a value is wrong
    """
    messaging.set_transport_defaults(EXCHANGE)
    messaging.TransportURL(CONF)  # registers the options of transports
    logging.register_options(CONF)
    # os-brick logs each check of a device several times.
    quiet = ["futurist=WARN", "os_brick=WARN"]
    logging.set_defaults(default_log_levels=[*logging.get_default_log_levels(), *quiet])
    for name, value in (defaults or {}).items():
        CONF.set_default(name, value)
    if config_files is None:
        config_files = config_files_from_env() or None
    CONF(list(argv), project="attachd", version=version(), default_config_files=config_files)
    checking.check_values(CONF)
    checking.parse_transport_url(CONF)
    checking.parse_agent_transport_url(CONF)
    if not (CONF.log_file or CONF.log_dir):
        CONF.set_default("use_stderr", True)  # else oslo.log would take the standard output
    logging.setup(CONF, "attachd")
    log_format.use(CONF, "attachd", version())
    std_logging.captureWarnings(True)
    for unknown_option in checking.find_unknown_options(CONF):
        LOG.warning("%s", unknown_option)


def warn_of_shared_virtual_host() -> None:
    """Log a warning if the accounts of hosts can reach the managers; for API and managers."""
    if checking.is_virtual_host_shared(CONF):
        LOG.warning(
            "[agent]transport_url names the virtual host of [DEFAULT]transport_url: a host that "
            "has been taken over can command the managers. Create another virtual host for "
            "agents, or set [agent]enabled = false if there are none."
        )


def config_files_from_env() -> list[str]:
    """Return the configuration files that ATTACHD_CONFIG_FILES names."""
    named = os.environ.get(CONFIG_FILES_VARIABLE, "")
    return [word for word in named.split(os.pathsep) if word]


def manager_config_files() -> list[str]:
    """Return the files that attachd-manager reads by default, and one named after this command."""
    found = [
        *cfg.find_config_files("attachd", "attachd-manager"),
        *cfg.find_config_files("attachd"),
    ]
    return config_files_from_env() or list(dict.fromkeys(found))


def tune_garbage_collection() -> None:
    """Exclude all present objects from garbage collection, and collect less often.

    Call it when the process is ready to serve: modules and tables live as long as the process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
