# SPDX-License-Identifier: Apache-2.0
"""Tests of concurrent transitions on each database: the winner, the losers, and the rows."""

import contextlib
import functools
import random

from attachd import exception, states
from attachd.db.attachments import attachment_store
from attachd.db.cluster import services
from attachd.db.types import type_store
from attachd.db.volumes import volume_metadata, volume_store
from attachd.states import AttachmentState, Event, VolumeState
from attachd.tests.fixtures import db_rows
from attachd.tests.functional import race_case
from attachd.tests.functional.race_case import DatabaseRaceCase
from attachd.tests.selection import full_only

PROJECT = {"project_id": db_rows.PROJECT}
MOVES = (Event.CONNECT, Event.GRANTED, Event.COMPLETE, Event.DISCONNECT, Event.CONNECT_LOST)
LAST_MOVES = (Event.REVOKED, Event.CANCEL)
REFUSALS = (
    exception.AttachmentNotFound,
    exception.InvalidTransition,
    exception.VolumeNotAvailable,
)


class ContentionOnSqlite(DatabaseRaceCase):
    def _assert_derived(self, volume_id):
        row = db_rows.get_volume(volume_id)
        held = [
            AttachmentState(attachment["state"])
            for attachment in db_rows.list_attachments(volume_id)
        ]
        derived = states.derive(VolumeState(row["state"]), held)
        self.assertEqual(derived, (row["status"], row["attach_status"]))

    def test_reserve_of_one_volume_200_at_once_succeeds_once(self):
        volume = db_rows.add_volume()["id"]
        reserve = functools.partial(attachment_store.reserve, volume, PROJECT)
        outcomes = race_case.outcomes(*[reserve] * 200)
        self.assertEqual({"dict": 1, "VolumeNotAvailable": 199}, outcomes)
        self.assertEqual(1, len(db_rows.list_attachments(volume)))
        self._assert_derived(volume)

    def test_reserve_of_one_volume_in_4_processes_succeeds_once(self):
        volume = db_rows.add_volume()["id"]
        reserve = functools.partial(attachment_store.reserve, volume, PROJECT)
        outcomes = self.outcomes_in_processes(reserve, processes=4, threads=50)
        self.assertEqual({"dict": 1, "VolumeNotAvailable": 199}, outcomes)
        self.assertEqual(1, len(db_rows.list_attachments(volume)))
        self._assert_derived(volume)

    def test_reserve_of_multiattach_volume_at_once_succeeds_for_all(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        reserve = functools.partial(attachment_store.reserve, volume, PROJECT)
        self.assertEqual({"dict": 50}, race_case.outcomes(*[reserve] * 50))
        self.assertEqual(50, len(db_rows.list_attachments(volume)))
        self._assert_derived(volume)

    def test_reserve_by_two_servers_at_once_succeeds_for_one(self):
        volume = db_rows.add_volume()["id"]
        calls = [
            functools.partial(
                attachment_store.reserve, volume, {**PROJECT, "instance_uuid": server}
            )
            for server in ("one", "two")
            for _ in range(20)
        ]
        self.assertEqual({"dict": 20, "VolumeNotAvailable": 20}, race_case.outcomes(*calls))
        self.assertEqual(
            1, len({row["instance_uuid"] for row in db_rows.list_attachments(volume)})
        )

    def test_random_transitions_keep_volume_status_derived(self):
        multiattach = [db_rows.add_volume(multiattach=True)["id"] for _ in range(2)]
        for volume in multiattach:
            for _ in range(6):
                db_rows.add_attachment(volume)
        calls = [functools.partial(self._move_about, seed, multiattach) for seed in range(32)]
        self.assertEqual({"int": 32}, race_case.outcomes(*calls))
        for volume in multiattach:
            self._assert_derived(volume)

    def _move_about(self, seed, volume_ids):
        chance = random.Random(seed)
        moved = 0
        for _ in range(20):
            volume = chance.choice(volume_ids)
            held = attachment_store.list_of_volumes([volume])
            # A volume that others make "detaching" cannot be reserved.
            with contextlib.suppress(*REFUSALS):
                if not held or chance.random() < 0.1:
                    attachment_store.reserve(volume, PROJECT)
                    continue
                event = chance.choice(MOVES if chance.random() < 0.8 else LAST_MOVES)
                attachment_store.transition(chance.choice(held)["id"], volume, event)
                moved += 1
        return moved

    def test_transition_at_once_is_made_once(self):
        volume = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(volume, "connecting")
        move = functools.partial(
            attachment_store.transition, attachment["id"], volume, Event.GRANTED
        )
        alone = functools.partial(
            attachment_store.transition_without_volume, attachment, Event.GRANTED, {}, 0
        )
        outcomes = race_case.outcomes(*[move, alone] * 10)
        self.assertEqual({1, 19}, set(outcomes.values()), outcomes)
        self.assertEqual(19, outcomes["InvalidTransition"])

    def test_reserve_and_delete_volume_at_once_exclude_each_other(self):
        for _ in range(10):
            volume = db_rows.add_volume()["id"]
            outcomes = race_case.outcomes(
                functools.partial(attachment_store.reserve, volume, PROJECT),
                functools.partial(volume_store.transition, volume, Event.DELETE),
            )
            refused = outcomes.keys() - {"dict"}
            self.assertIn(refused, [{"VolumeNotAvailable"}, {"InvalidVolume"}])
            self._assert_derived(volume)

    def test_metadata_updates_at_once_lose_no_key(self):
        volume = db_rows.add_volume()["id"]
        type_id = type_store.create({"name": "t"})["id"]
        pairs = [{str(number): "x"} for number in range(16)]
        merges = [functools.partial(volume_metadata.merge, volume, pair) for pair in pairs]
        specs = [functools.partial(type_store.merge_specs, type_id, pair) for pair in pairs]
        self.assertEqual({"dict": 32}, race_case.outcomes(*merges, *specs))
        self.assertEqual(16, len(volume_store.get(volume, None)["metadata"]))
        self.assertEqual(16, len(type_store.get(type_id)["extra_specs"]))

    def test_first_service_reports_at_once_create_one_service(self):
        report = functools.partial(
            services.report,
            binary="b",
            host="h@b",
            availability_zone="z",
            up=True,
            error=None,
            report={},
        )
        self.assertEqual({"NoneType": 20}, race_case.outcomes(*[report] * 20))
        self.assertEqual(1, len(services.page({})))


class ContentionOnMariadb(ContentionOnSqlite):
    kind = "mariadb"


@full_only("races")
class ContentionOnPostgresql(ContentionOnSqlite):
    kind = "postgresql"
