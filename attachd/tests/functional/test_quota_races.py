# SPDX-License-Identifier: Apache-2.0
"""Tests of concurrent calls near a project's quota, on each database."""

import functools

from attachd.conf import CONF
from attachd.db import quotas
from attachd.db.attachments import attachment_store
from attachd.db.types import type_store
from attachd.db.volumes import volume_store, volume_updates
from attachd.tests.fixtures import db_rows
from attachd.tests.functional import race_case
from attachd.tests.functional.race_case import DatabaseRaceCase
from attachd.tests.selection import full_only

VALUES = {"project_id": db_rows.PROJECT, "size_gib": 1, "host": "here@fake#pool"}


def create(**values):
    """Store a volume."""
    return volume_store.create({**VALUES, **values}, {})


@full_only("races")
class RacesOnSqlite(DatabaseRaceCase):
    def test_create_volume_100_at_once_with_quota_7_succeeds_7_times(self):
        quotas.set_limits(db_rows.PROJECT, {"volumes": 7})
        outcomes = race_case.outcomes(*[create] * 100)
        self.assertEqual({"dict": 7, "QuotaExceeded": 93}, outcomes)
        self.assertEqual(7, len(db_rows.list_volumes()))

    def test_create_first_volumes_at_once_keeps_the_quota(self):
        CONF.set_override("quota_volumes", 3, group="quota")
        for project in ("p1", "p2", "p3"):
            outcomes = race_case.outcomes(*[functools.partial(create, project_id=project)] * 20)
            self.assertEqual({"dict": 3, "QuotaExceeded": 17}, outcomes)

    def test_create_volume_in_2_processes_with_quota_5_succeeds_5_times(self):
        quotas.set_class_limits("default", {"volumes": 5})
        outcomes = self.outcomes_in_processes(create, processes=2, threads=40)
        self.assertEqual({"dict": 5, "QuotaExceeded": 75}, outcomes)

    def test_gigabyte_quota_is_kept_by_calls_at_once(self):
        gold = type_store.create({"name": "gold"})["id"]
        growing = [db_rows.add_volume()["id"] for _ in range(20)]
        quotas.set_limits(db_rows.PROJECT, {"gigabytes": 20 + 15, "gigabytes_gold": 6})
        calls = [
            functools.partial(volume_store.extend, item, db_rows.PROJECT, 2) for item in growing
        ]
        calls += [create] * 10
        calls += [functools.partial(create, volume_type_id=gold)] * 20
        outcomes = race_case.outcomes(*calls)
        self.assertEqual({"dict": 15, "QuotaExceeded": 35}, outcomes)
        used = quotas.usage(db_rows.PROJECT)
        self.assertEqual(35, used["gigabytes"].total)
        self.assertLessEqual(used.get("gigabytes_gold", quotas.ResourceUsage(0)).total, 6)

    def test_type_quota_is_kept_by_retypes_at_once(self):
        gold = type_store.create({"name": "gold"})["id"]
        quotas.set_limits(db_rows.PROJECT, {"volumes_gold": 6})
        request = volume_updates.RetypeRequest(None, gold, type_specs={}, statuses=("available",))
        calls = [
            functools.partial(
                volume_updates.retype, db_rows.add_volume()["id"], db_rows.PROJECT, request
            )
            for _ in range(20)
        ]
        calls += [functools.partial(create, volume_type_id=gold)] * 20
        outcomes = race_case.outcomes(*calls)
        self.assertEqual(34, outcomes["QuotaExceeded"], outcomes)
        self.assertEqual(6, quotas.usage(db_rows.PROJECT)["volumes_gold"].total)

    def test_attachment_quota_is_kept_by_calls_at_once(self):
        several = db_rows.add_volume(multiattach=True)["id"]
        quotas.set_limits(db_rows.PROJECT, {"attachments": 7})
        owner = {"project_id": db_rows.PROJECT, "user_id": "u"}
        calls = [
            functools.partial(attachment_store.reserve, volume_id, owner)
            for volume_id in [several] * 20 + [db_rows.add_volume()["id"] for _ in range(20)]
        ]
        outcomes = race_case.outcomes(*calls)
        self.assertEqual({"dict": 7, "QuotaExceeded": 33}, outcomes)
        self.assertEqual(7, quotas.usage(db_rows.PROJECT)["attachments"].total)

    def test_quota_released_by_delete_is_used_once(self):
        quotas.set_limits(db_rows.PROJECT, {"volumes": 10})
        going = [create(state="deleting")["id"] for _ in range(10)]
        leave = [
            functools.partial(volume_store.transition, item, volume_store.Event.DELETED)
            for item in going
        ]
        outcomes = race_case.outcomes(*leave, *[create] * 30)
        made = outcomes["dict"] - len(going)
        self.assertEqual(made, len(db_rows.list_volumes()))
        self.assertLessEqual(made, 10)
        # The rest is available for the next calls.
        left = race_case.outcomes(*[create] * 10)
        self.assertEqual((10 - made, made), (left["dict"], left["QuotaExceeded"]))

    def test_quota_limit_cannot_be_set_below_concurrent_usage(self):
        for _ in range(5):
            db_rows.remove_all()
            quotas.set_limits(db_rows.PROJECT, {"volumes": 10})
            lower = functools.partial(
                quotas.set_limits_above_usage, db_rows.PROJECT, {"volumes": 3}
            )
            race_case.outcomes(*[create] * 5, lower, *[create] * 5)
            limit = quotas.project_limits(db_rows.PROJECT)["volumes"]
            self.assertLessEqual(len(db_rows.list_volumes()), limit)


class RacesOnMariadb(RacesOnSqlite):
    kind = "mariadb"


class RacesOnPostgresql(RacesOnSqlite):
    kind = "postgresql"
