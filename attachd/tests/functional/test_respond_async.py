# SPDX-License-Identifier: Apache-2.0
"""Tests of Prefer: respond-async: the API returns at once, and a manager does the work."""

from unittest import mock

from attachd import exception
from attachd.db import messages
from attachd.db.attachments import async_requests
from attachd.db.engine.paging import Page
from attachd.manager.periodic_tasks import recovery
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc import manager_api
from attachd.tests import concurrency
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

SERVER = "11111111-2222-4333-8444-555555555555"
OTHER_SERVER = "22222222-2222-4333-8444-555555555555"
HOST = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:1"}
LATER = {"prefer": "respond-async"}
ATTACHD_1_0 = f"{wsgi_api.LATEST}, attachd 1.0"


class Case(ApiCase):
    def create(self, volume, server=SERVER, options=LATER, **fields):
        body = {"attachment": {"volume_uuid": volume["id"], "instance_uuid": server, **fields}}
        return self.api.request("POST", "/attachments", body, **options)

    def update(self, identity, connector=HOST, options=LATER):
        body = {"attachment": {"connector": connector}}
        return self.api.request("PUT", f"/attachments/{identity}", body, **options)

    def delete(self, identity, options=LATER, query=""):
        return self.api.request("DELETE", f"/attachments/{identity}{query}", **options)

    def assert_accepted(self, status, answer):
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual("respond-async", answer.headers["preference-applied"])
        shown = answer.body["attachment"]
        where = f"http://api.example:8776/v3/attachments/{shown['id']}"
        self.assertEqual(where, answer.headers["location"])
        self.assertEqual(status, shown["status"])
        return shown["id"]

    def assert_done_at_once(self, answer):
        self.assertEqual(200, answer.status, answer.raw)
        self.assertNotIn("preference-applied", answer.headers)
        self.assertNotIn("location", answer.headers)

    def wait_until_it_is(self, identity, state):
        wait_until(lambda: db_rows.get_attachment(identity)["state"] == state)

    def wait_until_it_is_gone(self, identity):
        url = f"/attachments/{identity}"
        wait_until(lambda: self.api.request("GET", url).status == 404)


class BacklogTest(Case):
    def setUp(self):
        super().setUp()
        override(self, "max_pending_per_project", 2, "api")
        for state in ("connecting", "disconnecting"):
            db_rows.add_attachment(db_rows.add_volume()["id"], state)

    def assert_refused(self, answer):
        self.assertEqual(429, answer.status, answer.raw)
        self.assertEqual("5", answer.headers["retry-after"])
        self.assertRegex(answer.fault, r"2 attachments .* \(\[api\]max_pending_per_project\)")

    def test_respond_async_over_backlog_returns_429_and_changes_nothing(self):
        volume = db_rows.add_volume()
        self.assert_refused(self.create(volume, connector=HOST))
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])
        reserved = db_rows.add_attachment(volume["id"])["id"]
        self.assert_refused(self.update(reserved))
        attached = db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]
        self.assert_refused(self.delete(attached))
        self.assertEqual("reserved", db_rows.get_attachment(reserved)["state"])
        self.assertEqual("attached", db_rows.get_attachment(attached)["state"])

    def test_request_with_idempotency_key_succeeds_when_repeated_after_the_backlog(self):
        volume, options = db_rows.add_volume(), {**LATER, "idempotency_key": "k"}
        for _ in range(2):
            answer = self.create(volume, connector=HOST, options=options)
            self.assert_refused(answer)
            self.assertNotIn("idempotent-replayed", answer.headers)
        override(self, "max_pending_per_project", 3, "api")
        self.assert_accepted("attaching", self.create(volume, connector=HOST, options=options))

    def test_respond_async_reservation_ignores_backlog(self):
        self.assert_done_at_once(self.create(db_rows.add_volume()))

    def test_request_that_waits_ignores_backlog(self):
        answer = self.create(db_rows.add_volume(), connector=HOST, options={})
        self.assertEqual(200, answer.status, answer.raw)

    def test_respond_async_after_end_of_backlog_is_accepted(self):
        override(self, "max_pending_per_project", 3, "api")
        answer = self.create(db_rows.add_volume(), connector=HOST)
        self.wait_until_it_is(self.assert_accepted("attaching", answer), "connected")

    def test_backlog_of_other_project_does_not_count(self):
        for volume in db_rows.list_volumes():
            for attachment in db_rows.list_attachments(volume["id"]):
                db_rows.change_attachment(attachment["id"], project_id="other")
        self.assert_accepted("attaching", self.create(db_rows.add_volume(), connector=HOST))

    def test_respond_async_without_limit_is_accepted(self):
        override(self, "max_pending_per_project", 0, "api")
        self.assert_accepted("attaching", self.create(db_rows.add_volume(), connector=HOST))


class LaterTest(Case):
    def test_respond_async_create_connect_and_delete_return_at_once(self):
        volume = db_rows.add_volume()
        answer = self.create(volume, connector=HOST)
        identity = self.assert_accepted("attaching", answer)
        self.assertEqual({}, answer.body["attachment"]["connection_info"])
        self.wait_until_it_is(identity, "connected")
        shown = self.api.request("GET", f"/attachments/{identity}").body["attachment"]
        self.assertEqual("attaching", shown["status"])
        self.assertEqual(identity, shown["connection_info"]["attachment_id"])
        self.assertEqual({identity}, self.driver.granted())
        self.assertEqual(identity, self.assert_accepted("detaching", self.delete(identity)))
        self.wait_until_it_is_gone(identity)
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])

    def test_respond_async_update_returns_at_once(self):
        for version in ("volume 3.27", wsgi_api.LATEST, ATTACHD_1_0):
            with self.subTest(version):
                options = {**LATER, "version": version}
                made = self.create(db_rows.add_volume(), options=options)
                self.assert_done_at_once(made)
                identity = made.body["attachment"]["id"]
                self.assert_accepted("attaching", self.update(identity, options=options))
                self.wait_until_it_is(identity, "connected")
                again = self.update(identity, options=options)
                self.assert_done_at_once(again)
                waited = self.update(identity, options={"version": version})
                self.assertEqual(waited.body, again.body)

    def test_respond_async_without_manager_work_is_done_at_once(self):
        made = self.create(db_rows.add_volume())
        deleted = self.delete(made.body["attachment"]["id"])
        self.assert_done_at_once(deleted)
        self.assertEqual({"attachments": []}, deleted.body)

    def test_respond_async_with_force_is_ignored(self):
        identity = self.create(db_rows.add_volume(), connector=HOST, options={})
        identity = identity.body["attachment"]["id"]
        options = {**LATER, "token": wsgi_api.ADMIN, "version": ATTACHD_1_0}
        self.assert_done_at_once(self.delete(identity, options, "?force=true"))
        self.assertEqual([], db_rows.list_attachments())

    def test_call_without_respond_async_waits(self):
        for request in (
            "",
            "respond-asynchronously",
            "wait=10",
            "return=minimal",
            '"respond-async"',
        ):
            with self.subTest(request):
                answer = self.create(
                    db_rows.add_volume(), connector=HOST, options={"prefer": request}
                )
                self.assert_done_at_once(answer)
                self.assertNotEqual({}, answer.body["attachment"]["connection_info"])

    def test_respond_async_among_other_preferences_is_recognised(self):
        for request in (
            "return=minimal, respond-async",
            "Respond-Async; x=1,wait=5",
            " respond-async",
        ):
            with self.subTest(request):
                volume = db_rows.add_volume()
                self.assert_accepted(
                    "attaching", self.create(volume, connector=HOST, options={"prefer": request})
                )

    def test_respond_async_failure_sets_status_and_user_message(self):
        volume = db_rows.add_volume()
        with self.driver.failing("grant", final=True):
            identity = self.assert_accepted("attaching", self.create(volume, connector=HOST))
            self.wait_until_it_is(identity, "connect_failed")
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])
        wait_until(lambda: messages.page({"resource_uuid": volume["id"]}, Page(limit=9)))
        self.assert_accepted("attaching", self.update(identity))
        self.wait_until_it_is(identity, "connected")
        with self.driver.failing("revoke"):
            self.assert_accepted("detaching", self.delete(identity))
            self.wait_until_it_is(identity, "disconnect_failed")
        self.assert_accepted("detaching", self.delete(identity))
        self.wait_until_it_is_gone(identity)


class RefusedTest(Case):
    """What is refused is refused at once, as for those who wait, and leaves nothing."""

    def assert_the_same_refusal(self, ask):
        plain, later = ask({}), ask(LATER)
        self.assertGreaterEqual(plain.status, 400)
        self.assertEqual((plain.status, plain.fault), (later.status, later.fault))
        self.assertNotIn("preference-applied", later.headers)

    def test_respond_async_with_other_connector_is_refused(self):
        identity = self.create(db_rows.add_volume(), connector=HOST, options={})
        identity = identity.body["attachment"]["id"]
        other = {**HOST, "host": "compute-2"}
        self.assert_the_same_refusal(lambda options: self.update(identity, other, options))
        self.assertEqual(HOST, db_rows.get_attachment(identity)["connector"])

    def test_respond_async_second_connection_of_ordinary_volume_is_refused(self):
        volume = db_rows.add_volume()
        self.create(volume, connector=HOST, options={})
        second = self.create(volume, options={}).body["attachment"]["id"]
        other = {**HOST, "host": "compute-2"}
        self.assert_the_same_refusal(lambda options: self.update(second, other, options))
        self.assertEqual("reserved", db_rows.get_attachment(second)["state"])

    def test_respond_async_write_connect_of_read_only_volume_is_refused(self):
        volume = db_rows.add_volume()
        identity = self.create(volume, mode="rw", options={}).body["attachment"]["id"]
        db_rows.change_volume(volume["id"], admin_metadata={"readonly": "True"})
        self.assert_the_same_refusal(lambda options: self.update(identity, HOST, options))
        self.assertEqual("reserved", db_rows.get_attachment(identity)["state"])

    def test_respond_async_for_unknown_attachment_returns_404(self):
        identity = wsgi_api.PROJECT
        self.assert_the_same_refusal(lambda options: self.update(identity, HOST, options))
        self.assert_the_same_refusal(lambda options: self.delete(identity, options))

    def test_respond_async_refused_create_leaves_no_reservation(self):
        refused = exception.AttachmentLimitExceeded(what="x", count=1, limit=1, name="y")
        with mock.patch.object(async_requests, "connect_shared", side_effect=refused):
            answer = self.create(db_rows.add_volume(), connector=HOST)
        self.assertEqual(400, answer.status, answer.raw)
        self.assertEqual([], db_rows.list_attachments())


class LostTest(Case):
    """A message that never comes to a manager."""

    def setUp(self):
        super().setUp()
        away = exception.Unavailable(reason="The queue is away.")
        self.cast = mock.patch.object(manager_api, "process_pending", side_effect=away)

    def recover(self):
        RecoveryLoop(self.api.backend).run_once()

    def test_respond_async_lost_message_is_processed_by_recovery(self):
        with self.cast:
            identity = self.assert_accepted(
                "attaching", self.create(db_rows.add_volume(), connector=HOST)
            )
        self.assertEqual([], self.driver.methods)
        self.recover_until(lambda: db_rows.get_attachment(identity)["state"] == "connected")
        with self.cast:
            self.assert_accepted("detaching", self.delete(identity))
        self.assertEqual({identity}, self.driver.granted())
        self.recover_until(lambda: not db_rows.list_attachments())
        self.assertEqual(set(), self.driver.granted())

    def recover_until(self, condition):
        wait_until(lambda: condition() or self.recover())

    def test_respond_async_repeated_request_sends_the_message_again(self):
        with self.cast:
            made = self.create(db_rows.add_volume(), options={}).body["attachment"]["id"]
            for _ in range(2):
                self.assert_accepted("attaching", self.update(made))
        self.assert_accepted("attaching", self.update(made))
        self.wait_until_it_is(made, "connected")
        with self.cast:
            for _ in range(2):
                self.assert_accepted("detaching", self.delete(made))
        self.assert_accepted("detaching", self.delete(made))
        self.wait_until_it_is_gone(made)

    def test_respond_async_followed_by_waiting_call_returns_the_connection(self):
        with self.cast:
            made = self.create(db_rows.add_volume(), options={}).body["attachment"]["id"]
            self.assert_accepted("attaching", self.update(made))
        waited = self.update(made, options={})
        self.assertEqual(200, waited.status, waited.raw)
        self.assertEqual("connected", db_rows.get_attachment(made)["state"])
        with self.cast:
            self.assert_accepted("detaching", self.delete(made))
        self.assertEqual(200, self.delete(made, {}).status)
        self.assertEqual([], db_rows.list_attachments())

    def test_respond_async_duplicate_or_late_message_is_ignored(self):
        made = self.create(db_rows.add_volume(), options={}).body["attachment"]["id"]
        recovery.process_pending(self.api.backend, made)
        self.assertEqual("reserved", db_rows.get_attachment(made)["state"])
        self.assertEqual(200, self.update(made, options={}).status)
        recovery.process_pending(self.api.backend, made)
        self.assertEqual(["grant"], self.driver.methods)
        self.assertEqual(200, self.delete(made, {}).status)
        recovery.process_pending(self.api.backend, made)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_respond_async_messages_at_once_connect_once(self):
        with self.cast:
            made = self.create(db_rows.add_volume(), connector=HOST).body["attachment"]["id"]
        concurrency.run_at_once(*[lambda: recovery.process_pending(self.api.backend, made)] * 4)
        self.assertEqual("connected", db_rows.get_attachment(made)["state"])
        self.assertEqual(["grant"], self.driver.methods)

    def test_respond_async_with_idempotency_key_works(self):
        volume = db_rows.add_volume()
        options = {**LATER, "idempotency_key": "k"}
        with self.cast:
            first = self.create(volume, options=options, connector=HOST)
            again = self.create(volume, options=options, connector=HOST)
        self.assertEqual((202, 202), (first.status, again.status))
        self.assertEqual(first.body, again.body)
        self.assertEqual(1, len(db_rows.list_attachments()))


class RaceTest(Case):
    def test_respond_async_delete_during_connect_leaves_nothing(self):
        volume = db_rows.add_volume()
        made = self.create(volume, options={}).body["attachment"]["id"]
        real = self.driver.grant

        def deleted_meanwhile(*args):
            self.assert_accepted("detaching", self.delete(made))
            return real(*args)

        with mock.patch.object(self.driver, "grant", deleted_meanwhile):
            connected = self.update(made, options={})
        self.assertGreaterEqual(connected.status, 400)
        self.wait_until_it_is_gone(made)
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])
