# SPDX-License-Identifier: Apache-2.0
"""attachd-status: check whether this deployment is ready for this code, before an upgrade."""

from collections.abc import Callable, Sequence
import functools
import sys
from typing import Any

from oslo_config import cfg
from oslo_upgradecheck import common_checks, upgradecheck

from attachd import exception, service
from attachd.api import app, policy_rules
from attachd.api.types import lookup
from attachd.cmd import upgrade_checks
from attachd.conf import CONF
from attachd.db import migration

Code = upgradecheck.Code
Result = upgradecheck.Result

_NOT_CHECKED = 255
_policy_in_yaml = functools.partial(common_checks.check_policy_json, conf=CONF)


def _in_spite_of_values(check: Callable[..., Result]) -> Callable[..., Result]:
    """Let a wrong value fail only the check that reads it."""

    @functools.wraps(check)
    def checked(*arguments: Any, **named: Any) -> Result:
        try:
            return check(*arguments, **named)
        except cfg.Error as error:
            return Result(Code.FAILURE, str(error))

    return checked


class Checks(upgradecheck.UpgradeCommands):
    """The checks, from general to specific."""

    def database(self) -> Result:
        """Whether the database answers and has the tables this code needs."""
        try:
            found, expected = migration.version(), migration.head()
        except exception.AttachdError as error:
            return Result(Code.FAILURE, str(error))
        if found != expected:
            return Result(
                Code.FAILURE,
                f"The database has version {found or 'none'} and this code needs {expected}: run "
                "attachd-manage db sync.",
            )
        return Result(Code.SUCCESS)

    def callers(self) -> Result:
        """Whether callers can be authenticated, and services distinguished from users."""
        strategy = CONF.api.auth_strategy
        try:
            app.load_strategy().wrap(_nothing)
        except (cfg.Error, exception.AttachdError) as error:
            return Result(
                Code.FAILURE,
                f"The API cannot run with auth_strategy = {strategy or ''}. {error}",
            )
        if strategy == "noauth":
            return Result(
                Code.FAILURE,
                "[api] auth_strategy is noauth: any client that reaches the API may do "
                "everything. Set it to keystone or http_basic.",
            )
        if strategy == "keystone" and not CONF.keystone_authtoken.service_token_roles_required:
            return Result(
                Code.WARNING,
                "[keystone_authtoken] service_token_roles_required is false: any user can pass "
                "for a service.",
            )
        return Result(Code.SUCCESS)

    def policies(self) -> Result:
        """Whether the policy files are valid."""
        try:
            unused = policy_rules.check_files()
        except exception.AttachdError as error:
            return Result(Code.FAILURE, str(error))
        if unused:
            return Result(
                Code.WARNING,
                f"These rules in the policy files decide about nothing: {', '.join(unused)}.",
            )
        return Result(Code.SUCCESS)

    def default_type(self) -> Result:
        """Whether the default volume type exists."""
        try:
            lookup.configured_default()
        except exception.DefaultTypeMissing as error:
            return Result(Code.FAILURE, str(error))
        except exception.AttachdError:
            return Result(Code.SUCCESS, "Not checked: the database does not answer.")
        return Result(Code.SUCCESS)

    _upgrade_checks = tuple(
        (name, _in_spite_of_values(check))
        for name, check in (
            ("Options", upgrade_checks.options),
            ("Database", database),
            ("Clocks", upgrade_checks.clock),
            ("Message Queue", upgrade_checks.queue),
            ("Agents", upgrade_checks.agents),
            ("Managers", upgrade_checks.managers),
            ("Upgrade Level", upgrade_checks.pin),
            ("Backends", upgrade_checks.listed),
            ("Storage", upgrade_checks.storage),
            ("Secrets", upgrade_checks.secrets),
            ("Policy", policies),
            ("Callers", callers),
            ("Default Volume Type", default_type),
            ("Compute Events", upgrade_checks.compute_events),
            ("List Filters", upgrade_checks.list_filters),
            ("Policy File JSON to YAML", _policy_in_yaml),
        )
    )


def _nothing(_environ: app.Environ, _start_response: app.StartResponse) -> list[bytes]:
    return []


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks and print the results.

    :param argv: the command line without the program's name
    :returns: the exit code: 0 ready, 1 there are warnings, 2 not ready, 255 the check failed
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not any(argument.startswith(("--config-file", "--config-dir")) for argument in arguments):
        arguments = [
            f"--config-file={config_file}" for config_file in service.manager_config_files()
        ] + arguments
    try:
        return upgradecheck.main(CONF, "attachd", Checks(), arguments)
    except cfg.Error as error:
        print(f"attachd-status: {error}", file=sys.stderr)
        return _NOT_CHECKED
