# SPDX-License-Identifier: Apache-2.0
"""attachd-status: whether this deployment is ready for this code; run before an upgrade."""

from collections.abc import Sequence
import sys

from oslo_config import cfg
from oslo_upgradecheck import common_checks, upgradecheck

from attachd import exception
from attachd.conf import CONF
from attachd.db import migration

Code = upgradecheck.Code
Result = upgradecheck.Result


class Checks(upgradecheck.UpgradeCommands):
    """The checks, from what everything needs to what only some need."""

    def database(self) -> Result:
        """Whether the database answers and has the tables this code needs."""
        try:
            found, wanted = migration.version(), migration.head()
        except exception.AttachdError as error:
            return Result(Code.FAILURE, str(error))
        if found != wanted:
            return Result(
                Code.FAILURE,
                f"The database has version {found or 'none'} and this code needs {wanted}: run "
                "attachd-manage db sync.",
            )
        return Result(Code.SUCCESS)

    def backends(self) -> Result:
        """Whether each enabled backend has a group that names its driver."""
        names = CONF.enabled_backends
        if not names:
            return Result(
                Code.WARNING, "enabled_backends is empty: no manager can run with this file."
            )
        without = [name for name in names if not _driver_of(name)]
        if without:
            return Result(
                Code.FAILURE,
                "These of enabled_backends have no group of their name with a driver in it: "
                f"{', '.join(without)}.",
            )
        return Result(Code.SUCCESS)

    _upgrade_checks = (
        ("Database", database),
        ("Backends", backends),
        ("Policy File JSON to YAML", (common_checks.check_policy_json, {"conf": CONF})),
    )


def _driver_of(name: str) -> str | None:
    group = cfg.OptGroup(name)
    CONF.register_opt(cfg.StrOpt("driver"), group=group)
    driver: str | None = CONF[name].driver
    return driver


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found.

    :param argv: the command line without the program's name
    :returns: the exit code: 0 ready, 1 look at the warnings, 2 not ready, 255 the check failed
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    return upgradecheck.main(CONF, "attachd", Checks(), arguments)
