# SPDX-License-Identifier: Apache-2.0
"""Tests of a volume's row when messages to its backend are sent, and when they fail."""

from unittest import mock

from attachd import exception
from attachd.api.volumes import backend_calls
from attachd.db import quotas
from attachd.db.cluster import services
from attachd.db.volumes import volume_updates
from attachd.objects import Volume
from attachd.states import Event
from attachd.tests.fixtures import api_context, db_rows

IMAGE = "11111111-2222-4333-8444-555555555555"
OTHER_IMAGE = "11111111-2222-4333-8444-666666666666"
AWAY = exception.Unavailable(reason="The message queue does not answer. Try again later.")


class BackendCallsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def create(self):
        values = {"project_id": db_rows.PROJECT, "size_gib": 1, "host": "here@fake#p"}
        return backend_calls.create(self.ctx, values)

    def loaded(self, state="ready"):
        return Volume.get(self.ctx, db_rows.add_volume(state)["id"])

    def failing(self, meanwhile=None):
        def fail(_ctx, volume):
            if meanwhile is not None:
                Volume.get(self.ctx, volume.id).fire(meanwhile)
            raise AWAY

        for name in ("create_volume", "delete_volume", "extend_volume"):
            getattr(self.manager_api, name).side_effect = fail

    def test_create_stores_row_before_message(self):
        states = []
        self.manager_api.create_volume.side_effect = lambda _ctx, volume: states.append(
            (db_rows.get_volume(volume.id)["state"], db_rows.get_volume(volume.id)["owner"])
        )
        self.create()
        self.assertEqual([("creating", "here@fake")], states)

    def test_create_with_failed_message_leaves_volume_in_error(self):
        self.failing()
        with self.assertRaises(exception.Unavailable) as caught:
            self.create()
        (row,) = db_rows.list_volumes()
        self.assertEqual(("error", None), (row["status"], row["owner"]))
        self.assertIn("message queue", row["error"])
        self.assertIn(row["id"], str(caught.exception))
        self.assertEqual(503, caught.exception.code)

    def test_frozen_backend_refuses_delete_and_extend(self):
        api_context.report_backend("here@fake")
        services.freeze(api_context.BINARY, "here@fake")
        volume = self.loaded()
        for act in (backend_calls.delete, lambda *given: backend_calls.extend(*given, 2)):
            with self.assertRaisesRegex(exception.BackendFrozen, "The backend is frozen"):
                act(self.ctx, volume)
        self.assertEqual("ready", db_rows.get_volume(volume.id)["state"])
        self.assertEqual([], self.manager_api.mock_calls)

    def test_create_with_failed_message_and_created_volume_stays_available(self):
        self.failing(meanwhile=Event.CREATED)
        made = self.create()
        self.assertEqual(made.id, db_rows.list_volumes()[0]["id"])
        self.assertEqual("available", db_rows.list_volumes()[0]["status"])

    def test_delete_with_failed_message_can_be_repeated(self):
        volume = self.loaded()
        self.failing()
        with self.assertRaises(exception.Unavailable):
            backend_calls.delete(self.ctx, volume)
        self.assertEqual("error_deleting", db_rows.get_volume(volume.id)["status"])
        self.manager_api.delete_volume.side_effect = None
        backend_calls.delete(self.ctx, Volume.get(self.ctx, volume.id))
        self.assertEqual("deleting", db_rows.get_volume(volume.id)["status"])

    def test_delete_with_failed_message_and_deleted_volume_succeeds(self):
        volume = self.loaded()
        self.failing(meanwhile=Event.DELETED)
        backend_calls.delete(self.ctx, volume)
        self.assertEqual([], db_rows.list_volumes())

    def test_extend_with_failed_message_and_extended_volume_succeeds(self):
        volume = self.loaded()
        self.failing(meanwhile=Event.EXTENDED)
        backend_calls.extend(self.ctx, volume, 5)
        self.assertEqual("available", db_rows.get_volume(volume.id)["status"])

    def test_extend_of_volume_in_use_needs_online_extend(self):
        api_context.report_backend(
            report={**api_context.BACKEND_REPORT, "capabilities": {"online_extend": False}}
        )
        volume = self.loaded()
        volume.status = "in-use"
        with self.assertRaisesRegex(exception.NoValidBackend, "online_extend"):
            backend_calls.extend(self.ctx, volume, 5)
        self.manager_api.extend_volume.assert_not_called()
        volume.status = "available"
        backend_calls.extend(self.ctx, volume, 5)

    def test_extend_records_new_size(self):
        volume = self.loaded()
        backend_calls.extend(self.ctx, volume, 5)
        row = db_rows.get_volume(volume.id)
        self.assertEqual(
            ("extending", 5, 1), (row["status"], row["new_size_gib"], row["size_gib"])
        )
        self.manager_api.extend_volume.assert_called_once_with(self.ctx, volume)

    def test_extend_with_failed_message_restores_volume(self):
        volume = self.loaded()
        self.failing()
        with self.assertRaises(exception.Unavailable):
            backend_calls.extend(self.ctx, volume, 5)
        row = db_rows.get_volume(volume.id)
        self.assertEqual(
            ("available", 1, None), (row["status"], row["size_gib"], row["new_size_gib"])
        )

    def test_delete_and_extend_in_wrong_state_send_nothing(self):
        volume = self.loaded("creating")
        for act in (
            lambda: backend_calls.delete(self.ctx, volume),
            lambda: backend_calls.extend(self.ctx, volume, 2),
        ):
            with self.assertRaises(exception.InvalidTransition):
                act()
        self.assertEqual([], self.manager_api.mock_calls)


class UploadTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.volume = Volume.get(self.ctx, db_rows.add_volume(error="of before")["id"])
        self.discard = mock.Mock(return_value=True)

    def upload(self, create=lambda: None):
        image = backend_calls.NewImage(IMAGE, create, self.discard)
        backend_calls.upload(self.ctx, self.volume, image)

    def row(self):
        row = db_rows.get_volume(self.volume.id)
        return row["state"], row["upload_image_id"], row["error"]

    def raising(self, error):
        return mock.Mock(side_effect=error)

    def test_upload_requests_the_transfer(self):
        self.upload()
        self.assertEqual(("uploading", IMAGE, None), self.row())
        self.manager_api.upload_volume.assert_called_once_with(self.ctx, self.volume)
        self.discard.assert_not_called()

    def test_refused_image_leaves_the_volume_available(self):
        with self.assertRaises(exception.Forbidden):
            self.upload(self.raising(exception.Forbidden(action="x")))
        self.assertEqual(("ready", None), self.row()[:2])

    def test_image_that_may_have_been_made_is_left_to_a_manager(self):
        with self.assertRaises(exception.ImageRequestUnanswered):
            self.upload(self.raising(exception.ImageRequestUnanswered(reason="silent")))
        self.assertEqual(("uploading", IMAGE, "silent"), self.row())
        self.manager_api.upload_volume.assert_not_called()

    def end(self, event=Event.UPLOAD_FAILED):
        Volume.get(self.ctx, self.volume.id).fire(event, upload_image_id=None)

    def begin_again(self):
        self.end()
        Volume.get(self.ctx, self.volume.id).begin_upload(OTHER_IMAGE)

    def make_fail(self):
        volume_updates.fail_upload(self.volume.id, IMAGE, "too late")

    def test_image_that_is_made_too_late_is_deleted_and_answered_with_conflict(self):
        for meanwhile, state in (
            (self.end, "ready"),
            (self.begin_again, "uploading"),
        ):
            with self.assertRaisesRegex(exception.Conflict, "took too long"):
                self.upload(meanwhile)
            self.assertEqual(state, self.row()[0])
        self.assertEqual(2, self.discard.call_count)
        self.manager_api.upload_volume.assert_not_called()

    def test_failure_that_is_stored_before_the_image_is_made_deletes_it(self):
        with self.assertRaises(exception.Conflict):
            self.upload(self.make_fail)
        self.assertEqual(("uploading", IMAGE, "too late"), self.row())

    def test_image_that_already_has_the_data_is_a_success(self):
        self.discard.return_value = False
        self.upload(lambda: self.end(Event.UPLOADED))
        self.assertEqual(("ready", None, None), self.row())

    def test_late_refusal_leaves_the_next_upload(self):
        def refuse():
            self.begin_again()
            raise exception.Forbidden(action="x")

        with self.assertRaises(exception.Forbidden):
            self.upload(refuse)
        self.assertEqual(("uploading", OTHER_IMAGE), self.row()[:2])


class QuotaErrorFirstTest(api_context.ApiContextCase):
    def ask(self, error=None):
        with backend_calls.quota_error_first(db_rows.PROJECT, quotas.deltas_of_create(None, 5)):
            if error:
                raise error

    def test_no_valid_backend_within_quota_is_raised(self):
        with self.assertRaises(exception.NoValidBackend):
            self.ask(exception.NoValidBackend(reason="full"))

    def test_quota_exceeded_wins_over_no_valid_backend(self):
        quotas.set_limits(db_rows.PROJECT, {"gigabytes": 4})
        with self.assertRaisesRegex(exception.QuotaExceeded, "5 more requested, 0 of 4"):
            self.ask(exception.NoValidBackend(reason="full"))
        with self.assertRaises(exception.Unavailable):
            self.ask(exception.Unavailable(reason="x"))
        self.ask()
