# SPDX-License-Identifier: Apache-2.0
"""Tests of type changes while volumes get the type, on each database."""

from collections import Counter
import functools
import threading
import unittest
from unittest import mock

from attachd import exception, multiattach
from attachd.db.types import type_store
from attachd.db.volumes import volume_store, volume_updates
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.functional import race_case
from attachd.tests.functional.race_case import DatabaseRaceCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

SEVERAL = {"multiattach": "<is> True"}
ROUNDS = 15


def create(kind, project=db_rows.PROJECT):
    """Store a volume, as the API does: by the type as it was a moment ago."""
    specs = type_store.get(kind)["extra_specs"]
    values = {
        "project_id": project,
        "size_gib": 1,
        "host": "here@fake#pool",
        "volume_type_id": kind,
        "type_specs": specs,
        "multiattach": multiattach.parse(specs).multiattach,
    }
    return volume_store.create(values, {})


def retype(volume_id, kind):
    """Give a volume the type, as it was a moment ago."""
    specs = type_store.get(kind)["extra_specs"]
    wanted = volume_updates.RetypeRequest(None, kind, specs, ("available",))
    volume_updates.retype(volume_id, db_rows.PROJECT, wanted)


@full_only("races")
class RacesOnSqlite(DatabaseRaceCase):
    def race(self, kind, *others):
        """Have volumes get a type, created and retyped, and others do something to it."""
        free = [db_rows.add_volume()["id"] for _ in range(6)]
        calls = [functools.partial(create, kind, f"p{number % 3}") for number in range(12)]
        calls += [functools.partial(retype, item, kind) for item in free]
        # In the middle, so that there is something before and after them.
        calls[len(calls) // 2 : len(calls) // 2] = others
        return race_case.outcomes(*calls)

    def assert_kept(self, kind):
        several = multiattach.parse(type_store.get(kind)["extra_specs"]).multiattach
        having = [
            row["multiattach"] for row in db_rows.list_volumes() if row["volume_type_id"] == kind
        ]
        self.assertEqual([several] * len(having), having)
        return len(having)

    def test_type_change_and_create_at_once_leave_the_multiattach_flag_of_the_type(self):
        seen = Counter()
        for number in range(ROUNDS):
            kind = type_store.create({"name": f"t{number}", "extra_specs": SEVERAL})["id"]
            change = functools.partial(type_store.delete_spec, kind, "multiattach")
            outcomes = self.race(kind, change)
            self.assertLessEqual(
                outcomes.keys(), {"dict", "NoneType", "Conflict", "BadRequest"}, outcomes
            )
            got = self.assert_kept(kind)
            self.assertEqual(18 - outcomes["Conflict"], got)
            if type_store.get(kind)["extra_specs"] == SEVERAL:
                self.assertEqual((1, 0), (outcomes["BadRequest"], outcomes["Conflict"]))
            seen += outcomes
        self.assertGreater(seen["dict"], 0)

    def test_type_changes_and_renames_at_once_lose_no_update(self):
        for number in range(ROUNDS):
            kind = type_store.create({"name": f"t{number}"})["id"]
            pairs = (SEVERAL, {"mode": "RO"}, {"max_attachments": "2"})
            changes = [functools.partial(type_store.merge_specs, kind, pair) for pair in pairs]
            name = functools.partial(type_store.update, kind, {"name": f"n{number}"})
            outcomes = self.race(kind, *changes, name)
            self.assertLessEqual(
                outcomes.keys(), {"dict", "NoneType", "Conflict", "BadRequest"}, outcomes
            )
            self.assert_kept(kind)

    def test_type_delete_and_create_volume_at_once_leave_no_volume_of_deleted_type(self):
        for number in range(ROUNDS):
            kind = type_store.create({"name": f"t{number}", "extra_specs": SEVERAL})["id"]
            outcomes = self.race(kind, functools.partial(type_store.delete, kind))
            having = [row for row in db_rows.list_volumes() if row["volume_type_id"] == kind]
            if outcomes["TypeInUse"]:
                self.assertEqual(18, len(having))
                continue
            self.assertEqual((18, 0), (outcomes["VolumeTypeNotFound"], len(having)))


@full_only("races")
class WaitingOnMariadb(unittest.TestCase):
    """One at a time, in the order that matters."""

    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.type = type_store.create({"name": "shared", "extra_specs": SEVERAL})["id"]
        self.volume = db_rows.add_volume()["id"]

    def test_retype_checked_against_old_type_is_refused(self):
        calls = (
            functools.partial(create, self.type),
            functools.partial(retype, self.volume, self.type),
        )
        with mock.patch.object(type_store, "get", return_value={"extra_specs": {}}):
            for call in calls:
                with self.assertRaisesRegex(exception.Conflict, "changed meanwhile"):
                    call()
        self.assertEqual([None], [row["volume_type_id"] for row in db_rows.list_volumes()])

    def test_type_change_waits_for_volume_create_in_progress(self):
        kept, changed = threading.Event(), threading.Event()
        real = type_store.lock_unchanged

        def keep(connection, type_id, judged):
            real(connection, type_id, judged)
            kept.set()
            # As long as this transaction lasts, the other one does not get on.
            self.assertFalse(changed.wait(0.5))

        def change():
            self.assertTrue(kept.wait(TIMEOUT))
            try:
                type_store.merge_specs(self.type, {"mode": "RO"})
            finally:
                changed.set()

        with mock.patch.object(type_store, "lock_unchanged", keep):
            made, refused = concurrency.run_at_once(functools.partial(create, self.type), change)
        self.assertEqual(self.type, made["volume_type_id"])
        self.assertRegex(str(refused), "currently in use")


class RacesOnMariadb(RacesOnSqlite):
    kind = "mariadb"


class RacesOnPostgresql(RacesOnSqlite):
    kind = "postgresql"


class WaitingOnPostgresql(WaitingOnMariadb):
    kind = "postgresql"
