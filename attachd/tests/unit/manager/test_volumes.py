# SPDX-License-Identifier: Apache-2.0
"""Create, delete and extend: the resulting row, also after duplicate messages."""

from pathlib import Path
import threading
from unittest import mock

from oslo_utils import units

from attachd import exception
from attachd.conf import CONF
from attachd.db import compute_events, models
from attachd.db.volumes import volume_store, volume_updates
from attachd.drivers import base
from attachd.manager import copy_progress, flow_runner, volumes
from attachd.rpc import agent_api
from attachd.states import Event, VolumeState
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_nova
from attachd.tests.wait import TIMEOUT, wait_until


class _VolumeCase(backends.BackendCase):
    def _add(self, state, **values):
        return db_rows.add_volume(state, owner=backends.HOST, **values)["id"]

    def _check_left_alone(self, work, state):
        """A late message does nothing."""
        volume_id = db_rows.add_volume(state)["id"]
        before = self._at_rest(volume_id)
        work(self.backend, volume_id)
        self.assertEqual(before, self._at_rest(volume_id))
        self.assertEqual([], self.driver.driver_calls)

    def _at_rest(self, volume_id):
        """Return the row of a volume without the generation of its lease."""
        row = db_rows.get_volume(volume_id)
        self.assertIsNone(row["lease_holder"])
        return {**row, "lease_generation": None}

    def _others(self, waited_for):
        states = ["creating", "ready", "extending", "deleting", "maintenance", "error"]
        states += ["error_deleting", "error_extending", "managing", "unmanaging"]
        states += ["error_managing", "error_unmanaging"]
        return [state for state in states if state != waited_for]


class CreateTest(_VolumeCase):
    """From creating to ready."""

    def test_create_calls_driver_and_stores_provider(self):
        volume_id = self._add("creating", size_gib=5)
        volumes.create(self.backend, volume_id)
        self.assertEqual({volume_id: 5}, self.driver.sizes())
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("ready", "available"), (row["state"], row["status"]))
        self.assertEqual(({"lun": 1}, None), (row["provider"], row["owner"]))
        self.assertIsNotNone(row["launched_at"])

    def test_create_failure_is_reverted_and_stored(self):
        volume_id = self._add("creating")
        with self.driver.failing("create"):
            volumes.create(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error", "error", None), (row["state"], row["status"], row["owner"]))
        self.assertIn("backend failed", row["error"])
        self.assertEqual(["create", "delete"], self.driver.methods)

    def test_create_with_backend_down_stores_error(self):
        self.backend.error = "the cable is out"
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual("error", row["status"])
        self.assertIn("cable", row["error"])
        self.assertEqual([], self.driver.driver_calls)

    def test_create_duplicate_message_does_nothing(self):
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        before = self._at_rest(volume_id)
        volumes.create(self.backend, volume_id)
        self.assertEqual(before, self._at_rest(volume_id))
        self.assertEqual(["create"], self.driver.methods)

    def test_create_late_message_does_nothing(self):
        for state in self._others("creating"):
            self._check_left_alone(volumes.create, state)
        volumes.create(self.backend, "gone")
        self.assertEqual([], self.driver.driver_calls)

    def test_create_result_does_not_overwrite_reset_state(self):
        volume_id = self._add("creating")
        self.driver.script = lambda _call: volume_store.reset(volume_id, "error", None)
        volumes.create(self.backend, volume_id)
        self.assertEqual("error", db_rows.get_volume(volume_id)["state"])


class CopyTest(_VolumeCase):
    """From creating to ready, with the data of another volume."""

    def setUp(self):
        super().setUp()
        self.source = db_rows.add_volume(size_gib=3, provider={"lun": 7})["id"]

    def add(self, **values):
        return self._add("creating", size_gib=5, source_volid=self.source, **values)

    def test_copy_passes_source_to_driver_and_stores_provider(self):
        volume_id = self.add()
        volumes.create(self.backend, volume_id)
        (handed,) = self.driver.driver_calls
        self.assertEqual(
            ("clone", volume_id, 5), (handed.method, handed.volume.id, handed.volume.size_gib)
        )
        self.assertEqual(
            (self.source, 3, {"lun": 7}),
            (handed.source.id, handed.source.size_gib, handed.source.provider),
        )
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("available", {"lun": 1}), (row["status"], row["provider"]))

    def test_copy_stores_progress_until_it_is_created(self):
        self.enterContext(mock.patch.object(copy_progress, "INTERVAL", 0))
        volume_id, seen = self.add(admin_metadata={"a": "b", "progress": "99"}), []

        def clone(_call):
            for fraction in (0.001, 0.5, 0.501, 7.0):
                base.report_progress(fraction)
                row = db_rows.get_volume(volume_id)
                seen.append((row["admin_metadata"], row["updated_at"]))

        self.driver.script = clone
        volumes.create(self.backend, volume_id)
        shown = [admin_metadata["progress"] for admin_metadata, _updated_at in seen]
        self.assertEqual(["99", "50", "50", "100"], shown)
        self.assertEqual(1, len({updated_at for _admin_metadata, updated_at in seen}))
        self.assertEqual({"a": "b"}, db_rows.get_volume(volume_id)["admin_metadata"])

    def test_copy_stores_progress_at_intervals_and_despite_errors(self):
        volume_id = self.add()
        self.driver.script = lambda _call: [base.report_progress(n / 100) for n in range(100)]
        with mock.patch("attachd.db.volumes.volume_updates.set_progress") as stored:
            volumes.create(self.backend, volume_id)
            stored.assert_not_called()
        down = exception.Unavailable(reason="The database does not answer.")
        with (
            mock.patch.object(copy_progress, "INTERVAL", 0),
            mock.patch(
                "attachd.db.volumes.volume_updates.set_progress", side_effect=down
            ) as stored,
        ):
            other = self.add()
            volumes.create(self.backend, other)
        self.assertEqual(99, stored.call_count)
        self.assertEqual("available", db_rows.get_volume(other)["status"])

    def test_progress_of_created_volume_is_not_stored(self):
        volume_id = db_rows.add_volume(admin_metadata={"readonly": "True"})["id"]
        volume_updates.set_progress(volume_id, {}, 5)
        self.assertEqual({"readonly": "True"}, db_rows.get_volume(volume_id)["admin_metadata"])

    def test_copy_does_not_lock_source(self):
        seen = []
        self.driver.script = lambda _call: seen.append(self.backend.is_idle(self.source))
        volumes.create(self.backend, self.add())
        self.assertEqual([True], seen)

    def test_copy_failure_is_reverted_and_stored(self):
        volume_id = self.add()
        with self.driver.failing("clone"):
            volumes.create(self.backend, volume_id)
        self.assertEqual("error", db_rows.get_volume(volume_id)["status"])
        self.assertEqual(["clone", "delete"], self.driver.methods)

    def test_copy_with_missing_source_fails(self):
        volume_id = self._add("creating", source_volid="gone")
        volumes.create(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual("error", row["status"])
        self.assertIn("gone", row["error"])
        self.assertEqual([], self.driver.driver_calls)

    def test_copy_runs_in_background_task(self):
        volume_id = self.add()
        started, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def script(_call):
            started.set()
            go_on.wait(TIMEOUT)

        self.driver.script = script
        volumes.copy(self.backend, volume_id)
        self.assertTrue(started.wait(TIMEOUT))
        self.assertEqual("creating", db_rows.get_volume(volume_id)["status"])
        volumes.copy(self.backend, volume_id)
        go_on.set()
        wait_until(lambda: db_rows.get_volume(volume_id)["status"] == "available")
        self.assertEqual(["clone"], self.driver.methods)


class DeleteTest(_VolumeCase):
    """From deleting to nothing."""

    def test_delete_removes_volume_and_row(self):
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        volume_store.transition(volume_id, Event.DELETE)
        volumes.delete(self.backend, volume_id)
        self.assertEqual({}, self.driver.sizes())
        self.assertEqual([], db_rows.list_volumes())

    def test_delete_removes_lock_files(self):
        volume_id = self._add("deleting")
        volumes.delete(self.backend, volume_id)
        self.assertEqual([], list(Path(CONF.state_path).rglob(f"*{volume_id}*")))

    def test_delete_failure_keeps_lock_files(self):
        volume_id = self._add("deleting")
        with self.driver.failing("delete"):
            volumes.delete(self.backend, volume_id)
        self.assertTrue(list(Path(CONF.state_path).rglob(f"*{volume_id}*")))

    def test_delete_removes_unconnected_attachments(self):
        volume_id = self._add("deleting")
        db_rows.add_attachment(volume_id, "connect_failed")
        volumes.delete(self.backend, volume_id)
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_attachments()))

    def test_delete_failure_is_stored_and_can_be_repeated(self):
        volume_id = self._add("deleting")
        with self.driver.failing("delete"):
            volumes.delete(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error_deleting", None), (row["status"], row["owner"]))
        self.assertIn("backend failed", row["error"])
        volume_store.transition(volume_id, Event.DELETE)
        volumes.delete(self.backend, volume_id)
        self.assertEqual([], db_rows.list_volumes())

    def test_delete_with_backend_down_keeps_row(self):
        self.backend.error = "the cable is out"
        volume_id = self._add("deleting")
        volumes.delete(self.backend, volume_id)
        self.assertIn("cable", db_rows.get_volume(volume_id)["error"])

    def test_delete_duplicate_or_late_message_does_nothing(self):
        for state in self._others("deleting"):
            self._check_left_alone(volumes.delete, state)
        volumes.delete(self.backend, "gone")
        self.assertEqual([], self.driver.driver_calls)

    def test_delete_result_does_not_overwrite_reset_state(self):
        volume_id = self._add("deleting")
        self.driver.script = lambda _call: volume_store.reset(volume_id, "error", None)
        volumes.delete(self.backend, volume_id)
        self.assertEqual("error", db_rows.get_volume(volume_id)["state"])


class ExtendTest(_VolumeCase):
    """From extending to ready, and larger."""

    def test_extend_requests_reconcile_of_agents(self):
        volume_id = self._add("extending", size_gib=1, new_size_gib=3, multiattach=True)
        states = ("connected", "attached", "connecting", "disconnecting")
        result = [
            db_rows.add_attachment(volume_id, state, agent=f"node-{state}")["id"]
            for state in states
        ]
        db_rows.add_attachment(volume_id, "attached")
        away = exception.AgentUnavailable(host="node-1", since="yet")
        with mock.patch.object(
            agent_api, "reconcile", side_effect=[away, None]
        ) as request_reconcile:
            volumes.extend(self.backend, volume_id)
        self.assertEqual(result[:2], [call.args[2] for call in request_reconcile.call_args_list])
        self.assertEqual(3, db_rows.get_volume(volume_id)["size_gib"])
        with mock.patch.object(agent_api, "reconcile") as request_reconcile:
            volumes.extend(self.backend, volume_id)
        request_reconcile.assert_not_called()

    def notify_compute(self):
        """Configure a Compute; return it, and a volume of one of its servers that grows."""
        nova = fake_nova.FakeNova(self)
        for name, value in (("endpoint_override", nova.url), ("auth_type", "none")):
            conf_fixture.override(self, name, value, "nova")
        volume_id = self._add("extending", size_gib=1, new_size_gib=3)
        server = "11111111-2222-3333-4444-555555555555"
        nova.add_server(server)
        db_rows.add_attachment(volume_id, "attached", instance_uuid=server)
        return nova, volume_id

    def test_extend_notifies_compute_without_waiting_for_it(self):
        nova, volume_id = self.notify_compute()
        released = threading.Event()
        nova.before_response = lambda _path: released.wait(TIMEOUT)
        volumes.extend(self.backend, volume_id)
        self.assertEqual("in-use", db_rows.get_volume(volume_id)["status"])
        self.assertEqual([], nova.events)
        released.set()
        wait_until(lambda: [event["tag"] for event in nova.events] == [volume_id])
        wait_until(lambda: not self.backend.background_tasks.is_busy)
        self.assertEqual([], compute_events.list_due(10))

    def test_extend_that_recovery_finishes_notifies_compute(self):
        nova, volume_id = self.notify_compute()
        with self.driver.faults(extend="late"):
            volumes.extend(self.backend, volume_id)
        self.assertEqual([], compute_events.list_due(10))
        volumes.resolve_extend(self.backend, volume_id)
        wait_until(lambda: [event["tag"] for event in nova.events] == [volume_id])

    def test_extend_stores_event_with_the_size_or_not_at_all(self):
        _nova, volume_id = self.notify_compute()
        self.enterContext(mock.patch.object(self.backend.background_tasks, "submit"))
        killed = mock.patch.object(models, "new_id", side_effect=backends.ProcessKilled)
        with killed, self.assertRaises(backends.ProcessKilled):
            volumes.extend(self.backend, volume_id)
        self.assertEqual("extending", db_rows.get_volume(volume_id)["status"])
        volumes.extend(self.backend, volume_id)
        self.assertEqual(3, db_rows.get_volume(volume_id)["size_gib"])
        self.assertEqual([volume_id], [row["tag"] for row in compute_events.list_due(10)])

    def test_extend_that_fails_does_not_notify_compute(self):
        nova, volume_id = self.notify_compute()
        with self.driver.failing("extend", final=True):
            volumes.extend(self.backend, volume_id)
        self.assertEqual(([], []), (compute_events.list_due(10), nova.requests))

    def test_extend_without_credentials_of_compute_stores_no_event(self):
        nova, volume_id = self.notify_compute()
        conf_fixture.override(self, "auth_type", None, "nova")
        volumes.extend(self.backend, volume_id)
        self.assertEqual(3, db_rows.get_volume(volume_id)["size_gib"])
        self.assertEqual(([], []), (compute_events.list_due(10), nova.requests))

    def test_extend_passes_live_exports_to_driver(self):
        volume_id = self._add("extending", size_gib=1, new_size_gib=3, multiattach=True)
        live = [
            db_rows.add_attachment(volume_id, state)["id"] for state in ("connected", "attached")
        ]
        for state in ("reserved", "connect_failed", "disconnecting", "disconnect_failed"):
            db_rows.add_attachment(volume_id, state)
        volumes.extend(self.backend, volume_id)
        (handed,) = self.driver.driver_calls
        self.assertEqual((1, 3), (handed.volume.size_gib, handed.size_gib))
        self.assertEqual(live, [other.attachment_id for other in handed.others])
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("ready", "in-use"), (row["state"], row["status"]))
        self.assertEqual((3, None, None), (row["size_gib"], row["new_size_gib"], row["owner"]))

    def test_extend_failure_is_stored_and_keeps_size(self):
        volume_id = self._add("extending", size_gib=1, new_size_gib=3)
        with self.driver.failing("extend"):
            volumes.extend(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error_extending", 1), (row["status"], row["size_gib"]))
        self.assertIn("backend failed", row["error"])
        self.assertEqual(backends.HOST, row["owner"], "recovery takes it up")

    def test_extend_with_backend_down_fails(self):
        self.backend.error = "the cable is out"
        volume_id = self._add("extending", new_size_gib=3)
        volumes.extend(self.backend, volume_id)
        self.assertIn("cable", db_rows.get_volume(volume_id)["error"])

    def test_extend_duplicate_message_does_nothing(self):
        volume_id = self._add("extending", size_gib=1, new_size_gib=3)
        volumes.extend(self.backend, volume_id)
        volumes.extend(self.backend, volume_id)
        self.assertEqual(["extend"], self.driver.methods)
        self.assertEqual(3, db_rows.get_volume(volume_id)["size_gib"])

    def test_extend_late_message_does_nothing(self):
        for state in self._others("extending"):
            self._check_left_alone(volumes.extend, state)
        volumes.extend(self.backend, "gone")
        self.assertEqual([], self.driver.driver_calls)

    def test_extend_result_does_not_overwrite_reset_state(self):
        volume_id = self._add("extending", size_gib=1, new_size_gib=3)
        self.driver.script = lambda _call: volume_store.reset(volume_id, "error", None)
        volumes.extend(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error", 1), (row["state"], row["size_gib"]))

    def test_extend_unforeseen_driver_error_is_failure(self):
        volume_id = self._add("extending", new_size_gib=3)
        with self.driver.raising(ZeroDivisionError("bug"), "extend"):
            volumes.extend(self.backend, volume_id)
        self.assertIn("ZeroDivisionError", db_rows.get_volume(volume_id)["error"])

    def test_extend_final_failure_leaves_volume_in_error_extending(self):
        # The size that the user requested was not reached: an administrator has to check.
        volume_id = self._add("extending", new_size_gib=3)
        error = exception.BackendError("No room.", final=True)
        with self.driver.raising(error, "extend"):
            volumes.extend(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error_extending", None), (row["status"], row["owner"]))


class RecordResultTest(backends.BackendCase):
    def test_get_in_state_returns_only_row_in_expected_state(self):
        volume_id = db_rows.add_volume("creating")["id"]
        self.assertEqual(volume_id, volumes.get_in_state(volume_id, VolumeState.CREATING)["id"])
        self.assertIsNone(volumes.get_in_state(volume_id, VolumeState.DELETING))
        self.assertIsNone(volumes.get_in_state("gone", VolumeState.CREATING))

    def test_record_result_is_stored_once(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as volume_lease:
            after = volumes.record_result(volume_lease, Event.CREATED, {"size_gib": 3})
            self.assertEqual(("available", 3, None), (after["status"], after["size_gib"],
                                                      after["owner"]))  # fmt: skip
            self.assertIsNone(volumes.record_result(volume_lease, Event.CREATED, {}))

    def test_record_result_of_row_changed_by_others_does_nothing(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as volume_lease:
            db_rows.change_volume(volume_id, lease_holder="other", lease_generation=7)
            before = db_rows.get_volume(volume_id)
            self.assertIsNone(volumes.record_result(volume_lease, Event.CREATED, {}))
            volumes.record_failure(
                volume_lease, Event.CREATE_FAILED, exception.Unavailable(reason="Broken.")
            )
            self.assertEqual(before, db_rows.get_volume(volume_id))
            db_rows.remove_all()
            self.assertIsNone(volumes.record_result(volume_lease, Event.CREATED, {}))

    def test_record_failure_when_fenced_leaves_row(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        with self.backend.lock(volume_id) as volume_lease:
            before = db_rows.get_volume(volume_id)
            self.backend.membership.id = "another one by now"
            self.backend.membership.heartbeat()
            volumes.record_failure(
                volume_lease, Event.CREATE_FAILED, exception.Unavailable(reason="Late.")
            )
            self.assertEqual(before, db_rows.get_volume(volume_id))

    def test_record_failure_stores_reason(self):
        unavailable = exception.Unavailable(reason="The cable is out.")
        for failed in (unavailable, flow_runner.FlowFailed(unavailable, clean=True)):
            volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
            with self.backend.lock(volume_id) as volume_lease:
                volumes.record_failure(volume_lease, Event.CREATE_FAILED, failed)
            row = db_rows.get_volume(volume_id)
            self.assertEqual(("error", "The cable is out."), (row["status"], row["error"]))


class ManageTest(_VolumeCase):
    """From managing to ready."""

    def setUp(self):
        super().setUp()
        self.driver.existing["disk"] = 3 * units.Gi
        self.volume_id = self._add("managing", size_gib=3, provider={"source-name": "disk"})

    def test_manage_makes_volume_of_object(self):
        volumes.manage(self.backend, self.volume_id)
        self.assertEqual(({self.volume_id: 3}, {}), (self.driver.sizes(), self.driver.existing))
        row = db_rows.get_volume(self.volume_id)
        self.assertEqual(("ready", "available", 3), (row["state"], row["status"], row["size_gib"]))
        self.assertEqual(({}, None), (row["provider"], row["owner"]))
        self.assertIsNotNone(row["launched_at"])

    def test_manage_failure_keeps_object_and_stores_reason(self):
        for final in (True, False):
            volume_id = self._add("managing", size_gib=3, provider={"source-name": "disk"})
            with self.driver.failing("manage", final=final):
                volumes.manage(self.backend, volume_id)
            row = db_rows.get_volume(volume_id)
            self.assertEqual(("error_managing", {}), (row["state"], row["provider"]))
            self.assertIn("backend failed", row["error"])
            self.assertEqual({"disk": 3 * units.Gi}, self.driver.existing)

    def test_manage_failure_after_work_releases_object(self):
        with self.driver.failing_late("manage"):
            volumes.manage(self.backend, self.volume_id)
        self.assertEqual("error_managing", db_rows.get_volume(self.volume_id)["state"])
        self.assertEqual({}, self.driver.sizes())
        self.assertEqual({f"volume-{self.volume_id}": 3 * units.Gi}, self.driver.existing)

    def test_manage_waits_for_backend_that_is_away(self):
        before = self._at_rest(self.volume_id)
        self.backend.error = "the cable is out"
        volumes.manage(self.backend, self.volume_id)
        self.backend.error = None
        with self.driver.raising(exception.BackendUnreachable("no answer"), "manage", "unmanage"):
            volumes.manage(self.backend, self.volume_id)
        self.assertEqual(before, self._at_rest(self.volume_id))
        volumes.manage(self.backend, self.volume_id)
        self.assertEqual("ready", db_rows.get_volume(self.volume_id)["state"])

    def test_manage_duplicate_or_late_message_does_nothing(self):
        volumes.manage(self.backend, self.volume_id)
        before = self._at_rest(self.volume_id)
        volumes.manage(self.backend, self.volume_id)
        self.assertEqual(before, self._at_rest(self.volume_id))
        for state in self._others("managing"):
            self._check_left_alone(volumes.manage, state)

    def test_manage_after_crash_between_driver_and_row_finishes(self):
        self.driver.manage(backends.base.VolumeRef(self.volume_id, 3), {"source-name": "disk"})
        volumes.manage(self.backend, self.volume_id)
        self.assertEqual("ready", db_rows.get_volume(self.volume_id)["state"])
        self.assertEqual({self.volume_id: 3}, self.driver.sizes())

    def test_manage_by_driver_without_ability_stores_reason(self):
        self.backend.driver = backends.without_abilities(self.driver)
        volumes.manage(self.backend, self.volume_id)
        row = db_rows.get_volume(self.volume_id)
        self.assertEqual("error_managing", row["state"])
        self.assertIn("manage_existing", row["error"])


class UnmanageTest(_VolumeCase):
    """From unmanaging to no row."""

    def setUp(self):
        super().setUp()
        self.volume_id = self._add("unmanaging", size_gib=2)
        self.driver.create(backends.base.VolumeRef(self.volume_id, 2))
        self.driver.driver_calls.clear()

    def test_unmanage_removes_row_and_keeps_data(self):
        volumes.unmanage(self.backend, self.volume_id)
        self.assertRaises(exception.VolumeNotFound, volume_store.get, self.volume_id, None)
        self.assertEqual(({}, [2 * units.Gi]), _sizes(self.driver))

    def test_unmanage_waits_for_backend_that_is_away(self):
        before = self._at_rest(self.volume_id)
        self.backend.error = "the cable is out"
        volumes.unmanage(self.backend, self.volume_id)
        self.backend.error = None
        with self.driver.raising(exception.BackendUnreachable("no answer"), "unmanage"):
            volumes.unmanage(self.backend, self.volume_id)
        self.assertEqual(before, self._at_rest(self.volume_id))
        volumes.unmanage(self.backend, self.volume_id)
        self.assertRaises(exception.VolumeNotFound, volume_store.get, self.volume_id, None)

    def test_unmanage_failure_keeps_row_with_reason(self):
        with self.driver.failing("unmanage"):
            volumes.unmanage(self.backend, self.volume_id)
        row = db_rows.get_volume(self.volume_id)
        self.assertEqual("error_unmanaging", row["state"])
        self.assertIn("backend failed", row["error"])
        self.assertEqual(({self.volume_id: 2}, []), _sizes(self.driver))

    def test_unmanage_after_crash_between_driver_and_row_finishes(self):
        self.driver.unmanage(backends.base.VolumeRef(self.volume_id, 2))
        volumes.unmanage(self.backend, self.volume_id)
        self.assertRaises(exception.VolumeNotFound, volume_store.get, self.volume_id, None)
        self.assertEqual(({}, [2 * units.Gi]), _sizes(self.driver))

    def test_unmanage_late_message_does_nothing(self):
        for state in self._others("unmanaging"):
            self._check_left_alone(volumes.unmanage, state)


def _sizes(driver):
    return driver.sizes(), list(driver.existing.values())
