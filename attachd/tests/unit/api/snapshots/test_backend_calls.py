# SPDX-License-Identifier: Apache-2.0
"""Tests of requests to managers about snapshots."""

from unittest import mock

from attachd import exception
from attachd.api.snapshots import backend_calls
from attachd.db import idempotency_keys, models
from attachd.db.cluster import services
from attachd.db.volumes import snapshot_store, volume_store
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows

ANY = ("available", "in-use")


class BackendCallsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.ctx = api_context.make_context()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.volume = Volume.get(self.ctx, db_rows.add_volume()["id"])

    def create(self, claim=None):
        return backend_calls.create(self.ctx, self.volume, {"name": "n"}, ANY, claim)

    def added(self, state="available"):
        return snapshot_store.get(db_rows.add_snapshot(self.volume.id, state)["id"], None)

    def silence(self, method):
        getattr(self.manager_api, method).side_effect = exception.Unavailable(reason="No queue.")

    def test_snapshot_whose_message_is_not_sent_is_in_error(self):
        self.silence("create_snapshot")
        with self.assertRaisesRegex(exception.Unavailable, "was not taken and is in error"):
            self.create()
        (row,) = db_rows.list_snapshots()
        self.assertEqual(("error", "No queue."), (row["state"], row["error"]))

    def test_request_with_key_creates_one_snapshot(self):
        known = idempotency_keys.claim("d", "f", 60)
        for repeated in (False, True):
            claim = idempotency_keys.IdempotencyClaim("d", known.resource_id, repeated, False)
            self.assertEqual(known.resource_id, self.create(claim)["id"])
        self.assertEqual(1, len(db_rows.list_snapshots()))
        self.assertEqual({}, backend_calls.replay_create(self.ctx, known.resource_id, {}))
        with self.assertRaisesRegex(exception.NotFound, "has been deleted since"):
            backend_calls.replay_create(self.ctx, models.new_id(), {})

    def test_backend_without_snapshots_is_refused(self):
        report = {**api_context.BACKEND_REPORT, "capabilities": {"snapshots": False}}
        api_context.report_backend(report=report)
        with self.assertRaisesRegex(exception.NoValidBackend, "no snapshots"):
            self.create()
        self.assertEqual([], db_rows.list_snapshots())

    def test_frozen_backend_is_refused(self):
        db_rows.change_service("here@fake", frozen=True)
        for call in (self.create, lambda: backend_calls.delete(self.ctx, self.added())):
            with self.assertRaises(exception.BackendFrozen):
                call()
        self.assertTrue(services)

    def test_volume_without_backend_is_refused(self):
        self.volume = Volume.get(self.ctx, db_rows.add_volume("error", host=None)["id"])
        with self.assertRaisesRegex(exception.InvalidVolume, "no backend"):
            self.create()

    def test_deletion_whose_message_is_not_sent_can_be_repeated(self):
        row = self.added()
        self.silence("delete_snapshot")
        with self.assertRaises(exception.Unavailable):
            backend_calls.delete(self.ctx, row)
        self.assertEqual("error_deleting", db_rows.get_snapshot(row["id"])["state"])
        self.manager_api.delete_snapshot.side_effect = None
        backend_calls.delete(self.ctx, row)
        self.assertEqual("deleting", db_rows.get_snapshot(row["id"])["state"])

    def test_delete_by_force_works_in_each_state_but_a_revert(self):
        for state in ("creating", "available", "deleting", "error", "error_deleting"):
            row = self.added(state)
            backend_calls.force_delete(self.ctx, row)
            self.assertEqual("deleting", db_rows.get_snapshot(row["id"])["state"], state)
        row = self.added()
        volume_store.revert(self.volume.id, row["id"])
        with self.assertRaisesRegex(exception.InvalidTransition, "reset the volume"):
            backend_calls.force_delete(self.ctx, row)
