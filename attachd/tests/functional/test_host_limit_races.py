# SPDX-License-Identifier: Apache-2.0
"""Tests of attachments that are created at once for a host with a limit, on each database."""

import functools

from attachd.db import models
from attachd.db.attachments import attachment_store
from attachd.tests.fixtures import db_rows, fake_agent
from attachd.tests.functional import race_case
from attachd.tests.functional.race_case import DatabaseRaceCase
from attachd.tests.selection import full_only

HOST = "node-1"


def _reserve_another():
    """Reserve in a project of its own, so that no quota puts the calls in order."""
    project = models.new_id()
    volume_id = db_rows.add_volume(project_id=project)["id"]
    return attachment_store.reserve(volume_id, {"project_id": project, "agent": HOST})


@full_only("races")
class HostLimitRacesOnSqlite(DatabaseRaceCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST, max_attachments=3)

    def test_reserve_16_at_once_with_limit_3_succeeds_3_times(self):
        volumes = [db_rows.add_volume()["id"] for _ in range(16)]
        calls = [
            functools.partial(
                attachment_store.reserve, volume, {"project_id": db_rows.PROJECT, "agent": HOST}
            )
            for volume in volumes
        ]
        outcomes = race_case.outcomes(*calls)
        self.assertEqual({"dict": 3, "HostLimitExceeded": 13}, outcomes)
        self.assertEqual(3, len(db_rows.list_attachments()))

    def test_reserve_in_4_processes_at_once_with_limit_3_succeeds_3_times(self):
        if self.kind == "sqlite":
            self.skipTest("SQLite has one writer at a time")
        outcomes = self.outcomes_in_processes(_reserve_another, 4, 4)
        self.assertEqual({"dict": 3, "HostLimitExceeded": 13}, outcomes)


class HostLimitRacesOnMariadb(HostLimitRacesOnSqlite):
    kind = "mariadb"


class HostLimitRacesOnPostgresql(HostLimitRacesOnSqlite):
    kind = "postgresql"
