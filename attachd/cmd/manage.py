# SPDX-License-Identifier: Apache-2.0
"""attachd-manage: commands for the database, for operators and deployment tools.

audit.py compares it with backends, agents.py has the agents of hosts, keys.py the encryption keys,
storage.py the storage of backends; inspect.py shows rows.
"""

import argparse
import importlib
import os
import select
import signal
import sys
from typing import Any

from oslo_config import cfg

from attachd import exception, service
from attachd.cmd import agents, inspect, keys, output, storage
from attachd.conf import CONF
from attachd.db import migration
from attachd.db.agents import restored_database
from attachd.db.engine import session

_QUIET = ["alembic=WARN", "attachd=ERROR", "attachd.manager.backends=CRITICAL"]
"""Log levels: results are printed, so only unexpected errors are logged."""

_LATEST = "latest"

_MAX_HOURS = 24 * 366

NOT_COMPARED = 2
"""Exit code of an audit in which some backend could not be compared."""

_OUTPUT = 1
"""The number of the standard output."""

_UNREAD = 128 + signal.SIGPIPE
"""Exit code if the reader of the output has closed it; the shell's code for other programs."""


def main() -> int:
    """Execute the command line.

    :returns: the exit code: 0 done, 1 failed, 2 wrong command line, 141 the output was closed by
        its reader; of an audit, see there
    """
    failed = 1
    CONF.register_cli_opt(
        cfg.SubCommandOpt("subject", title="commands", dest="subject", handler=_add_commands)
    )
    try:
        service.prepare(
            sys.argv[1:],
            service.manager_config_files(),
            defaults={"default_log_levels": _QUIET},
        )
        failed = CONF.subject.failed
        code: int = CONF.subject.action() or 0
    except BrokenPipeError:
        if not _is_abandoned():
            raise
        code = _UNREAD
    except (cfg.Error, exception.AttachdError) as error:
        print(f"attachd-manage: {_explained(error)}", file=sys.stderr)
        return failed
    return code if _is_taken() else _UNREAD


def _is_abandoned() -> bool:
    """Return whether the reader of the output has closed it, as ``head`` does."""
    asked = select.poll()
    asked.register(_OUTPUT, 0)  # for errors, which need not be asked for
    return bool(asked.poll(0))


def _is_taken() -> bool:
    """Flush the output; return whether that succeeded.

    After a failure the rest is discarded: at its end Python would try once more.
    """
    try:
        print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _OUTPUT)
        return False
    return True


def _add_commands(subjects: Any) -> None:
    actions = output.add_subject(subjects, "db", "the tables of the database")
    sync = output.add_action(
        actions,
        "sync",
        _sync,
        "create the tables, or bring those of an older release up to date",
    )
    sync.add_argument("version", nargs="?", default=migration.HEAD, help="default: the newest")
    sync.add_argument(
        "--sql", action="store_true", help="print the SQL instead; the database is not asked"
    )
    sync.add_argument(
        "--since",
        metavar="VERSION",
        help="with --sql: the version that the database has; default: it is empty",
    )
    restored = output.add_action(
        actions,
        "restored",
        _restored,
        "after a restore from a backup: accept the next report of each agent, and believe that "
        "hosts have the devices that they report",
    )
    restored.add_argument(
        "--hours",
        type=_hours,
        default=24.0,
        metavar="NUMBER",
        help="how long reports are believed (24)",
    )
    restored.add_argument(
        "--end",
        nargs="*",
        metavar="HOST",
        help="end that: of these hosts, or of all",
    )
    output.add_action(actions, "version", _version, "print the versions of database and code")
    _add_audit(subjects)
    agents.add_command(subjects)
    _add_api(subjects)
    keys.add_command(subjects)
    storage.add_command(subjects)
    inspect.add_commands(subjects)


def _add_audit(subjects: Any) -> None:
    parser: argparse.ArgumentParser = subjects.add_parser(
        "audit", help="what database, backends and Compute do not agree about"
    )
    parser.add_argument(
        "--repair", action="store_true", help="do what is safe to do about it, data left alone"
    )
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one of enabled_backends; may be repeated",
    )
    parser.add_argument(
        "--compute",
        nargs="?",
        choices=("differing", "all"),
        const="differing",
        help="compare attachments of servers with Compute, too; all: also the ids of attachments "
        "of servers whose volumes do not differ",
    )
    output.add_format(parser)
    parser.set_defaults(action=_audit, failed=NOT_COMPARED)


def _audit() -> int:
    # The command needs the whole manager, whose import takes longer than most commands.
    from attachd.cmd import audit  # noqa: PLC0415

    return audit.run()


def _add_api(subjects: Any) -> None:
    actions = output.add_subject(subjects, "api", "what the API is")
    describe = output.add_action(
        actions,
        "describe",
        _describe,
        "print the OpenAPI description; neither database nor server is asked",
    )
    describe.add_argument(
        "--format", choices=("json", "yaml"), default="json", help="default: json"
    )
    describe.add_argument(
        "--microversion",
        metavar="VERSION",
        default=_LATEST,
        help="the one that is described, as 3.71; default: the latest",
    )


def _describe() -> None:
    # The import of the API takes long, and no other command needs it.
    document = importlib.import_module("attachd.api.openapi.document")
    described = document.describe(document.parse_version(CONF.subject.microversion))
    write = document.to_yaml if CONF.subject.format == "yaml" else document.to_json
    sys.stdout.write(write(described))


def _sync() -> None:
    if CONF.subject.sql:
        migration.write_sql(sys.stdout, CONF.subject.since)
        return
    before, target = migration.version(), CONF.subject.version
    migration.upgrade(target)
    after = migration.version()
    if before != after:
        print(f"{session.display_url()} has version {after} now; it had {before or 'no tables'}.")
    elif target in {migration.HEAD, after}:
        print(f"{session.display_url()} has version {after} already.")
    else:
        print(f"{session.display_url()} has version {after}, newer than {target}: not changed.")


def _hours(text: str) -> float:
    """Return a number of hours of at most a year."""
    hours = float(text)
    if not 0 < hours <= _MAX_HOURS:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {_MAX_HOURS} hours are needed")
    return hours


def _restored() -> None:
    hosts, hours = CONF.subject.end, CONF.subject.hours
    if hosts is not None:
        print(f"The reports of {restored_database.end(hosts)} agents are believed no more.")
        return
    number = restored_database.begin(hours * 3600)
    print(f"The next report of each of {number} agents is accepted, and believed for {hours:g} h.")
    if not number:
        print("Register the agents, and run this command again.")


def _version() -> None:
    print(f"database {migration.version() or 'empty'}")
    print(f"code {migration.head()}")


def _explained(error: Exception) -> str:
    """Return the error in one line, with the message of the database."""
    text = str(error)
    if isinstance(error, exception.Unavailable) and error.__cause__ is not None:
        said = " ".join(str(error.__cause__).split()).partition("(Background on")[0]
        text = f"{text} {session.display_url()}: {said.strip()}"
    return text
