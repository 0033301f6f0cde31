# SPDX-License-Identifier: Apache-2.0
"""attachd-manager: the daemon that manages the backends; started by systemd or by hand."""

import sys

from oslo_config import cfg
from oslo_service import service as oslo_service

from attachd import exception, service
from attachd.conf import CONF
from attachd.db.secrets import encryption
from attachd.manager import backends
from attachd.manager.service import ManagerService
from attachd.telemetry import gmr


def main() -> int:
    """Run [manager]workers processes until SIGTERM; SIGHUP restarts them.

    :returns: the exit code: 0 after SIGTERM, 1 if the configuration is invalid
    """
    try:
        service.prepare(sys.argv[1:])
        gmr.setup("attachd-manager")
        _check()
    except (cfg.Error, exception.AttachdError, OSError) as error:
        print(f"attachd-manager: {error}", file=sys.stderr)
        return 1
    service.tune_garbage_collection()  # for the workers, too, which are forks
    launcher = oslo_service.launch(CONF, ManagerService(), workers=CONF.manager.workers)
    return int(launcher.wait() or 0)


def _check() -> None:
    """Check the configuration once, before the workers start."""
    if not CONF.enabled_backends:
        raise exception.ConfigurationError(
            reason="There is nothing to serve: name backends in enabled_backends."
        )
    backends.load()
    encryption.start()
    service.warn_of_shared_virtual_host()
