#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count what MariaDB reads for calls and periodic tasks, with few and with many attachments.

For each number of attachments it fills a database of its own by SQL, calls functions of the API
and of a manager in its own process, and prints the rows and entries of indexes that were read, and
their ratio to those of the smallest database.  Each backend has a fiftieth of the volumes, and a
project half of them.  Neither broker nor storage is used.
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import json
from pathlib import Path
import sys
import time
from typing import NamedTuple
import unittest

from cycle import report
import sqlalchemy as sa

from attachd import host_identity
from attachd.api import microversions as mv
from attachd.api import policy_rules
from attachd.api.attachments import handlers as attachment_handlers
from attachd.api.info import handlers as info_handlers
from attachd.api.volumes import handlers as volume_handlers
from attachd.conf import CONF
from attachd.db import audit, host_fences, models, quotas, row_counts
from attachd.db.attachments import async_requests
from attachd.db.engine import session
from attachd.manager.audit import hosts, runner
from attachd.manager.backends import Backend, export, volume_ref
from attachd.manager.periodic_tasks import conditions, purge, recovery
from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.periodics import Backoff
from attachd.states import AttachmentState, VolumeState
from attachd.tests.fixtures import api_context, backends, conf_fixture, large_database
from attachd.tests.fixtures.lifetime import temp_dir

SMALLEST = 10_000
FENCED_HOST = "fenced-host"
FENCED = 100
"""How many attachments the host has that is fenced."""


class Reads(NamedTuple):
    """What a call has cost.

    :ivar rows: rows and entries of indexes that the server has read
    """

    rows: int
    statements: int
    seconds: float


class Action(NamedTuple):
    """A call, or a run of a periodic task.

    :ivar lists: whether it returns, or goes through, all of a backend: its rows may grow
    """

    name: str
    run: Callable[[], object]
    lists: bool = False


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if what does not list reads the same, 1 if not
    """
    arguments = _parser().parse_args()
    sizes = sorted({SMALLEST, *arguments.attachments})
    measured = {size: _measure(size) for size in sizes}
    lines = [["call or task", *(f"{size:,}" for size in sizes), "statements", "ratio"]]
    failed = False
    for name, (first, lists) in measured[SMALLEST].items():
        last = measured[sizes[-1]][name][0]
        ratio = last.rows / max(first.rows, 1)
        failed = failed or (ratio > arguments.most and not lists)
        rows = [f"{measured[size][name][0].rows:,}" for size in sizes]
        kind = " (lists)" if lists else ""
        lines.append([name, *rows, str(last.statements), f"{ratio:.2f}{kind}"])
    print(report.grid(lines))
    if arguments.json is not None:
        content = {
            size: {name: reads._asdict() for name, (reads, _lists) in found.items()}
            for size, found in measured.items()
        }
        arguments.json.write_text(json.dumps(content, indent=1))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Count what MariaDB reads, by number of rows.")
    parser.add_argument(
        "--attachments",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[1_000_000],
        metavar="N,...",
        help=f"numbers of attachments beside {SMALLEST}: 1000000",
    )
    parser.add_argument("--most", type=float, default=1.2, help="the highest ratio: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _measure(attachments: int) -> dict[str, tuple[Reads, bool]]:
    """Return what each action costs with so many attachments, and whether it lists."""
    found: dict[str, tuple[Reads, bool]] = {}
    with _database(attachments // 2) as backend:
        for action in _list_actions(backend):
            started = time.monotonic()
            with large_database.record_row_reads() as counted:
                action.run()
            duration = time.monotonic() - started
            found[action.name] = (Reads(counted.rows, counted.statements, duration), action.lists)
    return found


@contextlib.contextmanager
def _database(volumes: int) -> Iterator[Backend]:
    """Fill a database, and yield one of its backends."""
    owner = unittest.TestCase()
    try:
        CONF([], project="attachd", default_config_files=[])
        large_database.use(owner, "mariadb", volumes)
        conf_fixture.override(owner, "state_path", str(temp_dir(owner)))
        conf_fixture.override(owner, "host", "storage-7")
        policy_rules.reset()
        owner.addCleanup(policy_rules.reset)
        backend = backends.FakeBackend("fast", backends.RecordingDriver())
        backend.setup()
        _fill(backend)
        _move_to_fenced_host(backend)
        yield backend
    finally:
        owner.doCleanups()


def _fill(backend: backends.FakeBackend) -> None:
    """Create what the rows of a backend say, so that an audit finds no difference."""
    for page in audit.list_pages(backend.host):
        for volume in page.volumes.values():
            if volume["state"] == VolumeState.READY:
                backend.driver.create(volume_ref(volume))
        for row in page.attachments:
            if row["state"] == AttachmentState.ATTACHED:
                backend.driver.grant(volume_ref(page.volumes[row["volume_id"]]), export(row))


def _move_to_fenced_host(backend: Backend) -> None:
    """Have one host with few attachments, of volumes of another backend."""
    table = models.attachments
    others = sa.select(models.volumes.c.id).where(models.volumes.c.backend_host != backend.host)
    ids = (
        sa.select(table.c.id)
        .where(table.c.volume_id.in_(others), table.c.state == AttachmentState.ATTACHED)
        .limit(FENCED)
    )
    values = {"host": FENCED_HOST, "host_key": host_identity.host_key(FENCED_HOST)}
    with session.writer() as connection:
        found = connection.execute(ids).scalars().all()
        connection.execute(table.update().where(table.c.id.in_(found)).values(**values))


def _list_actions(backend: Backend) -> list[Action]:
    project = large_database.LARGE_PROJECT
    ctx = api_context.make_context(project=project)
    links = api_context.make_links()
    volume_id, attachment_id = _find_ids(project)
    limit = {quotas.ATTACHMENTS: 1_000}
    return [
        Action("GET volume", lambda: volume_handlers.show(ctx, volume_id, mv.LATEST, links)),
        Action("GET attachment", lambda: attachment_handlers.show(ctx, attachment_id)),
        Action("list of volumes", lambda: volume_handlers.detail(ctx, {}, mv.LATEST, links)),
        Action(
            "list of attachments", lambda: attachment_handlers.detail(ctx, {}, mv.LATEST, links)
        ),
        Action("quota of 1,000 attachments", lambda: _check_quota(project, limit)),
        Action("GET limits", lambda: info_handlers.limits(ctx, {}, mv.LATEST), lists=True),
        Action("metrics", lambda: row_counts.count(60, 0), lists=True),
        Action("recovery, first", lambda: recovery.recover_all(backend, Backoff())),
        Action("recovery", lambda: recovery.recover_stale(backend, Backoff())),
        Action(f"fence of a host with {FENCED}", _fence),
        Action("expiry", lambda: purge.expire_attachments(backend)),
        Action("conditions", lambda: conditions.observe(backend), lists=True),
        Action("start: exports", EnsureExportsTask(backend).run_once, lists=True),
        Action("audit", lambda: runner.compare(backend), lists=True),
        Action("audit of hosts", lambda: hosts.compare(backend), lists=True),
    ]


def _fence() -> None:
    """Fence a host, and begin with each of its attachments, without the calls of managers."""
    host_fences.fence(FENCED_HOST, "measured", None)
    rows = host_fences.list_unfenced([FENCED_HOST])
    if len(rows) != FENCED:
        raise AssertionError(f"{len(rows)} attachments are to be fenced, not {FENCED}")
    for row in rows:
        async_requests.fence_on_host(row["id"], row["volume_id"])


def _find_ids(project: str) -> tuple[str, str]:
    """Return the ids of a volume of a project, and of one of its attachments."""
    attachments = models.attachments
    statement = attachments.select().where(attachments.c.project_id == project).limit(1)
    with session.reader() as connection:
        row = connection.execute(statement).mappings().one()
    return row["volume_id"], row["id"]


def _check_quota(project: str, limit: dict[str, int]) -> None:
    with session.reader() as connection, contextlib.suppress(Exception):
        quotas.check_attachments(connection, project, limit[quotas.ATTACHMENTS])


if __name__ == "__main__":
    sys.exit(main())
