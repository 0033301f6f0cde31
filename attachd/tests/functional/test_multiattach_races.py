# SPDX-License-Identifier: Apache-2.0
"""Tests of 64 hosts that attach and detach one multiattach volume at the same time.

There are two managers of two processes each, RabbitMQ, MariaDB or PostgreSQL, and tgtd.
ATTACHD_TEST_CYCLES=2000 is a full run, which prints the duration of each call.
"""

import os
import sys

import sqlalchemy as sa
import testtools
from testtools import content

from attachd import states
from attachd.db import models
from attachd.states import AttachmentState, VolumeState
from attachd.tests.fixtures import deployments, http_client, initiators, tgtd
from attachd.tests.functional import attach_cycles
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only

WORKERS = 64
CYCLES = int(os.environ.get("ATTACHD_TEST_CYCLES", "0"))
FEW_CYCLES = 120
LOGINS = 20
MANAGERS = 2
POSSIBLE = {"available", "reserved", "attaching", "in-use", "detaching"}

TYPE = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}

_V, _T = models.volumes, models.attachments
SNAPSHOT = (
    sa.select(
        _V.c.state, _V.c.status, _V.c.attach_status, _V.c.pending_detaches, _T.c.state.label("one")
    )
    .select_from(_V.outerjoin(_T, _T.c.volume_id == _V.c.id))
    .where(_V.c.id == sa.bindparam("match_id"))
)
"""In one statement, which sees one moment."""


@full_only("scale")
class RacesOnMariadb(testtools.TestCase):
    """The API under uWSGI."""

    kind = "mariadb"

    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.deployment = deployment = deployments.Deployment(self, self.kind, backend="tgt")
        with (deployment.folder / "attachd.conf").open("a", encoding="utf-8") as file:
            file.write(settings("tgt", self.tgtd.options))
        self.processes = [deployment.start_manager() for _ in range(MANAGERS)]
        self.processes.append(self.start_api())
        for process in self.processes:
            process.show_in_failures(self)
        deployment.wait_until_served()
        self.engine = sa.create_engine(deployment.database, isolation_level="AUTOCOMMIT")
        self.addCleanup(self.engine.dispose)
        self.api = http_client.Client(f"{deployment.url}/v3")
        self.api.request_json("POST", "/types", {"volume_type": TYPE})
        self.volume = self.api.create_volume(volume_type=TYPE["name"])
        self.seen = []

    def start_api(self):
        return self.deployment.start_uwsgi()

    def test_attach_cycles_of_64_hosts_are_never_refused_and_leave_nothing(self):
        clock = attach_cycles.Durations()
        hosts = [
            self.useFixture(initiators.IscsiHost(self, f"host-{number}"))
            for number in range(WORKERS)
        ]
        workers = [attach_cycles.Worker(self.api, self.volume, host, clock) for host in hosts]
        with self.engine.connect() as connection:
            rows = attach_cycles.Monitor(lambda: self.look_at_rows(connection))
            answers = attach_cycles.Monitor(self.look_at_answer)
            with rows, answers:
                trouble = attach_cycles.run(workers, CYCLES or FEW_CYCLES, LOGINS)
                # On a slow machine, again until both watches have seen enough.
                while min(rows.count, answers.count) <= 10 and not (
                    trouble or rows.trouble or answers.trouble
                ):
                    trouble = attach_cycles.run(workers, FEW_CYCLES, LOGINS)
        figures = clock.figures(CYCLES or FEW_CYCLES)
        figures += f"\nobserved {rows.count} times in rows and {answers.count} times in answers"
        if CYCLES:
            sys.stderr.write(f"\n{self.kind}: {figures}\n")
        self.addDetail("figures", content.text_content(figures))
        self.assertEqual([], trouble[:5])
        self.assertEqual([], (rows.trouble + answers.trouble)[:5])
        self.assertGreater(min(rows.count, answers.count), 10)
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(_V).where(_V.c.id == self.volume)).one()
            left = connection.execute(sa.select(sa.func.count()).select_from(_T)).scalar_one()
        self.assertEqual(("available", "detached"), (row.status, row.attach_status))
        self.assertEqual(0, left)
        self.assertEqual([], self.tgtd.sessions())
        self.assertEqual([], self.tgtd.targets())
        self.assertEqual([self.volume], self.tgtd.orphans())
        said = "".join(process.output for process in self.processes)
        self.assertNotIn("Traceback", said)

    def look_at_rows(self, connection):
        """Compare what is stored with what is derived from the same moment."""
        found = connection.execute(SNAPSHOT, {"match_id": self.volume}).all()
        volume = found[0]
        held = [AttachmentState(item.one) for item in found if item.one]
        derived = states.derive(VolumeState(volume.state), held, volume.pending_detaches)
        if derived != (volume.status, volume.attach_status) or len(held) > WORKERS:
            yield f"stored {volume}, derived {derived} of {held}"

    def look_at_answer(self):
        """Ask for the volume; who is there before and after an answer is there in between."""
        volume = self.api.volume(self.volume)
        self.seen = [*self.seen[-2:], volume]
        if volume["status"] not in POSSIBLE:
            yield f"impossible: {volume['status']}"
        before, between, after = (self.seen * 3)[:3] if len(self.seen) < 3 else self.seen
        stayed = ids(before) & ids(after)
        if stayed and (between["status"] != "in-use" or stayed - ids(between)):
            yield f"attached {stayed}, shown {between}"


class RacesOnPostgresql(RacesOnMariadb):
    """The API under gunicorn."""

    kind = "postgresql"

    def start_api(self):
        return self.deployment.start_gunicorn()


def ids(volume):
    """Return the attachments that an answer shows."""
    return {attachment["attachment_id"] for attachment in volume["attachments"]}
