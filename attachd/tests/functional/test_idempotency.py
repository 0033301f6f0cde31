# SPDX-License-Identifier: Apache-2.0
"""Tests of requests with an Idempotency-Key: they are processed once."""

import json
from unittest import mock

from attachd import exception
from attachd.api.attachments import lifecycle
from attachd.conf import CONF
from attachd.db import idempotency_keys, models
from attachd.db.attachments import attachment_store
from attachd.db.engine import session
from attachd.rpc import manager_api
from attachd.states import Event
from attachd.tests import concurrency
from attachd.tests.fixtures import backends, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

SERVER = "11111111-2222-4333-8444-555555555555"
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
HOST = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:1"}


class Case(ApiCase):
    def request(self, path, body, key=KEY, **options):
        return self.api.request("POST", path, body, idempotency_key=key, **options)

    def attach(self, volume, key=KEY, version=wsgi_api.LATEST, token=wsgi_api.MEMBER, **fields):
        wanted = {"volume_uuid": volume["id"], "instance_uuid": SERVER, **fields}
        body = {"attachment": wanted}
        return self.request("/attachments", body, key, version=version, token=token)

    def make(self, key=KEY, token=wsgi_api.MEMBER, **fields):
        return self.request("/volumes", {"volume": {"size": 1, **fields}}, key, token=token)

    def assert_refused(self, status, says, answer):
        self.assertEqual(status, answer.status, answer.raw)
        self.assertRegex(answer.fault, says)

    def assert_replayed(self, first, again):
        self.assertEqual((first.status, first.raw), (again.status, again.raw))
        self.assertNotIn("idempotent-replayed", first.headers)
        self.assertEqual("true", again.headers["idempotent-replayed"])


class AttachmentsTest(Case):
    def test_repeated_create_attachment_returns_the_first_response_unchanged(self):
        for own in ("", ", attachd 1.0"):
            for name, fields in (
                ("reserved", {}),
                ("connected", {"connector": HOST}),
                ("for reading", {"connector": HOST, "mode": "ro"}),
            ):
                with self.subTest(name, own=own):
                    volume = db_rows.add_volume()
                    version = wsgi_api.LATEST + own
                    first = self.attach(volume, f"{name}{own[-3:]}", version, **fields)
                    again = self.attach(volume, f"{name}{own[-3:]}", version, **fields)
                    self.assertEqual(200, first.status, first.raw)
                    self.assert_replayed(first, again)
                    self.assertEqual(1, len(db_rows.list_attachments(volume["id"])))

    def test_repeated_create_attachment_after_changes_returns_the_first_response(self):
        volume = db_rows.add_volume()
        first = self.attach(volume, connector=HOST)
        url = f"/attachments/{first.body['attachment']['id']}"
        self.assertEqual(204, self.api.request("POST", f"{url}/action", {"os-complete": 1}).status)
        self.assert_replayed(first, self.attach(volume, connector=HOST))
        self.assertEqual(["grant"], self.driver.methods)

    def test_repeated_create_attachment_after_delete_says_it_is_deleted(self):
        volume = db_rows.add_volume()
        first = self.attach(volume, connector=HOST)
        identity = first.body["attachment"]["id"]
        self.assertEqual(200, self.api.request("DELETE", f"/attachments/{identity}").status)
        again = self.attach(volume, connector=HOST)
        self.assert_refused(404, f"attachment {identity}, has been deleted since", again)
        self.assertEqual([], db_rows.list_attachments())

    def test_create_attachment_with_other_key_creates_another(self):
        volume = db_rows.add_volume()
        first = self.attach(volume, "one", connector=HOST).body["attachment"]["id"]
        other = {"host": "compute-2", "initiator": "iqn.2026-01.org.example:2"}
        second = self.attach(volume, "two", connector=other)
        self.assertEqual(200, second.status, second.raw)
        self.assertNotEqual(first, second.body["attachment"]["id"])

    def test_stored_response_has_no_secret(self):
        driver_says = {"driver_volume_type": "iscsi", "data": {"auth_password": "geheim-7"}}
        with mock.patch.object(self.driver, "grant", return_value=driver_says):
            first = self.attach(db_rows.add_volume(), connector=HOST)
        self.assertEqual("geheim-7", first.body["attachment"]["connection_info"]["auth_password"])
        with session.reader() as connection:
            kept = connection.execute(models.idempotency_keys.select()).mappings().one()
        self.assertEqual(200, kept["status"])
        self.assertNotIn("geheim", json.dumps(dict(kept), default=str))

    def test_create_attachment_with_one_key_at_once_creates_one(self):
        for number in range(5):
            volume = db_rows.add_volume(multiattach=True)
            answers = concurrency.run_at_once(
                *[lambda v=volume, n=number: self.attach(v, f"k{n}", connector=HOST)] * 5
            )
            self.assertEqual([200] * 5, [answer.status for answer in answers], answers)
            found = {answer.body["attachment"]["id"] for answer in answers}
            self.assertEqual(found, {row["id"] for row in db_rows.list_attachments(volume["id"])})
            connections = [answer.body["attachment"]["connection_info"] for answer in answers]
            self.assertEqual([connections[0]] * 5, connections)


class LostTest(Case):
    """What is left where a run ends anywhere, and how the next one goes on."""

    def lose(self, module, name, volume, *, after=False, **fields):
        """Have a run end at a function of the API, as if its process had been killed."""
        real = getattr(module, name)

        def killed(*args, **kwargs):
            if after:
                real(*args, **kwargs)
            raise backends.ProcessKilled

        with mock.patch.object(module, name, killed), self.assertRaises(backends.ProcessKilled):
            self.attach(volume, connector=HOST, **fields)

    def test_create_attachment_killed_anywhere_is_continued_by_repetition(self):
        for module, name, after in (
            (lifecycle.Attachment, "reserve", False),
            (lifecycle.Attachment, "reserve", True),
            (manager_api, "attach", False),
            (manager_api, "attach", True),
            (idempotency_keys, "finish", False),
            (idempotency_keys, "finish", True),
        ):
            with self.subTest(name, after=after):
                db_rows.remove_all()
                self.driver.clear()
                with session.writer() as connection:
                    connection.execute(models.idempotency_keys.delete())
                volume = db_rows.add_volume()
                self.lose(module, name, volume, after=after)
                left = {row["id"] for row in db_rows.list_attachments()}
                answer = self.attach(volume, connector=HOST)
                self.assertEqual(200, answer.status, answer.raw)
                (row,) = db_rows.list_attachments()
                self.assertEqual(row["id"], answer.body["attachment"]["id"])
                self.assertLessEqual(left, {row["id"]})
                self.assertEqual("connected", row["state"])
                self.assertEqual({row["id"]}, self.driver.granted())
                kept = answer.body["attachment"]["connection_info"]
                self.assertEqual(row["id"], kept["attachment_id"])

    def test_repeated_create_attachment_after_failure_retries_the_same_attachment(self):
        volume = db_rows.add_volume()
        with self.driver.failing("grant", final=True):
            self.assert_refused(500, "The backend failed", self.attach(volume, connector=HOST))
        (failed,) = db_rows.list_attachments()
        answer = self.attach(volume, connector=HOST)
        self.assertEqual((200, failed["id"]), (answer.status, answer.body["attachment"]["id"]))

    def test_repeated_create_attachment_after_lost_message_creates_another(self):
        volume = db_rows.add_volume()
        away = exception.Unavailable(reason="The queue is away.")
        with mock.patch.object(manager_api, "attach", side_effect=away):
            for _ in range(2):
                self.assert_refused(503, "queue is away", self.attach(volume, connector=HOST))
                self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])
        answer = self.attach(volume, connector=HOST)
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual(1, len(db_rows.list_attachments()))

    def test_late_report_about_former_attachment_of_key_is_refused(self):
        volume, former = db_rows.add_volume(), []

        def lose(*_args):
            former.extend(db_rows.list_attachments())
            raise exception.Unavailable(reason="The queue is away.")

        with mock.patch.object(manager_api, "attach", lose):
            self.assertEqual(503, self.attach(volume, connector=HOST).status)
        answer = self.attach(volume, connector=HOST)
        (row,) = db_rows.list_attachments()
        self.assertEqual((200, former[0]["id"]), (answer.status, row["id"]))
        for generation in (former[0]["generation"], former[0]["generation"] + 1):
            with self.assertRaises(exception.InvalidTransition):
                attachment_store.transition(
                    row["id"], volume["id"], Event.DISCONNECT, generation=generation
                )

    def test_repeated_create_attachment_deleted_before_response_creates_none(self):
        volume = db_rows.add_volume()
        self.lose(idempotency_keys, "finish", volume)
        (row,) = db_rows.list_attachments()
        self.assertEqual(200, self.api.request("DELETE", f"/attachments/{row['id']}").status)
        again = self.attach(volume, connector=HOST)
        self.assert_refused(404, row["id"], again)
        self.assertEqual([], db_rows.list_attachments())

    def test_response_that_cannot_be_stored_is_returned(self):
        away = exception.Unavailable(reason="no database")
        volume = db_rows.add_volume()
        with mock.patch.object(idempotency_keys, "finish", side_effect=away):
            first = self.attach(volume)
        again = self.attach(volume)
        self.assertEqual((200, 200), (first.status, again.status))
        self.assertEqual(first.body, again.body)


class RefusalsTest(Case):
    def test_refused_create_attachment_is_refused_again(self):
        volume = db_rows.add_volume()
        held = db_rows.add_attachment(volume["id"], "attached", instance_uuid=SERVER[::-1])
        first = self.attach(volume)
        self.assert_refused(400, held["id"], first)
        db_rows.remove_attachment(held["id"])
        self.assert_replayed(first, self.attach(volume))
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual(200, self.attach(volume, "a new key").status)

    def test_refused_connect_leaves_nothing_and_is_refused_again(self):
        volume = db_rows.add_volume()
        refused = exception.NotMultiattach(volume_id="v", holder="server s")
        with mock.patch.object(manager_api, "attach", side_effect=refused):
            first = self.attach(volume, connector=HOST)
        self.assert_refused(409, "server s", first)
        self.assertEqual([], db_rows.list_attachments())
        self.assert_replayed(first, self.attach(volume, connector=HOST))

    def test_unreadable_request_is_not_stored(self):
        volume = db_rows.add_volume()
        self.assertEqual(400, self.attach(volume, mode="x").status)
        self.assertEqual(200, self.attach(volume).status)

    def test_idempotency_key_with_other_request_is_refused(self):
        volume = db_rows.add_volume()
        self.assertEqual(200, self.attach(volume, connector=HOST).status)
        for name, ask in (
            ("body", lambda: self.attach(volume, connector={**HOST, "x": 1})),
            ("a volume", lambda: self.attach(db_rows.add_volume(), connector=HOST)),
            ("version", lambda: self.attach(volume, version="volume 3.70", connector=HOST)),
            (
                "own version",
                lambda: self.attach(
                    volume, version=f"{wsgi_api.LATEST}, attachd 1.0", connector=HOST
                ),
            ),
            ("path", self.make),
        ):
            with self.subTest(name):
                self.assert_refused(422, "was used for another request", ask())
        self.assertEqual(1, len(db_rows.list_attachments()))

    def test_idempotency_key_with_equal_json_is_the_same_request(self):
        volume = db_rows.add_volume()
        wanted = {"connector": HOST, "instance_uuid": SERVER, "volume_uuid": volume["id"]}
        first = self.attach(volume, connector=HOST)
        raw = json.dumps({"attachment": wanted}, indent=3).encode()
        options = {"idempotency_key": f' "{KEY}" ', "content_type": "application/json"}
        url = f"/{wsgi_api.PROJECT}/attachments"
        again = self.api.request("POST", url, raw=raw, content_length=str(len(raw)), **options)
        self.assert_replayed(first, again)

    def test_idempotency_keys_of_other_users_are_separate(self):
        volume = db_rows.add_volume(multiattach=True)
        tokens = [wsgi_api.MEMBER, f"bob:{wsgi_api.PROJECT}:member,reader", wsgi_api.ADMIN]
        made = [self.attach(volume, token=token).body["attachment"]["id"] for token in tokens]
        self.assertEqual(3, len(set(made)))
        theirs = self.make(token=wsgi_api.OTHER_PROJECT_MEMBER)
        self.assertEqual(202, theirs.status, theirs.raw)

    def test_invalid_idempotency_key_returns_400(self):
        volume = db_rows.add_volume()
        for key in (
            *("", " ", '""', '"', '"x', 'x"', '"a" "b"', '"a", "b"', "a,b", '"a\\x"', "a\\b"),
            *("x" * 256, f'"{"x" * 256}"', "a\x01b", '"a\x7f"', "\xe4", '"a";q=1'),
        ):
            with self.subTest(key):
                self.assert_refused(400, "Idempotency-Key must be", self.attach(volume, key))
        self.assertEqual([], db_rows.list_attachments())

    def test_idempotency_key_may_have_printable_characters(self):
        for key in ("x" * 255, f'"{"x" * 254}y"', "a b", '"a, \\"b\\" \\\\"', "/:;=?@[]{}~!#$%"):
            with self.subTest(key):
                self.assertEqual(200, self.attach(db_rows.add_volume(), key).status)

    def test_calls_that_create_nothing_ignore_idempotency_keys(self):
        volume = db_rows.add_volume()
        made = self.attach(volume, connector=HOST).body["attachment"]["id"]
        url = f"/attachments/{made}"
        for _ in range(2):
            body = {"attachment": {"connector": HOST}}
            answer = self.api.request("PUT", url, body, idempotency_key="")
            self.assertEqual(200, answer.status, answer.raw)
            self.assertNotIn("idempotent-replayed", answer.headers)


class KeptTest(Case):
    def test_idempotency_key_expires_as_configured(self):
        volume = db_rows.add_volume(multiattach=True)
        CONF.set_override("idempotency_key_ttl", 60, group="api")
        self.addCleanup(CONF.clear_override, "idempotency_key_ttl", group="api")
        first = self.attach(volume).body["attachment"]["id"]
        with session.reader() as connection:
            kept = connection.execute(models.idempotency_keys.select()).one()
        self.assertEqual(60, (kept.expires_at - kept.created_at).total_seconds())
        with session.writer() as connection:
            old = models.idempotency_keys.update().values(expires_at=models.now())
            connection.execute(old)
        self.assertNotEqual(first, self.attach(volume).body["attachment"]["id"])

    def test_request_without_idempotency_key_needs_no_extra_statement(self):
        volume = db_rows.add_volume()
        body = {"attachment": {"volume_uuid": volume["id"], "instance_uuid": SERVER}}
        before = session.counters()
        self.assertEqual(200, self.api.request("POST", "/attachments", body).status)
        after = session.counters()
        self.assertEqual((4, 1), tuple(b - a for a, b in zip(before, after, strict=True)))


class VolumesTest(Case):
    def test_repeated_create_volume_returns_the_first_response_unchanged(self):
        first = self.make(name="data", metadata={"k": "v"})
        self.assertEqual(202, first.status, first.raw)
        self.assert_replayed(first, self.make(name="data", metadata={"k": "v"}))
        self.assertEqual(
            [first.body["volume"]["id"]], [row["id"] for row in db_rows.list_volumes()]
        )

    def test_create_volume_with_one_key_at_once_creates_one(self):
        answers = concurrency.run_at_once(*[self.make] * 5)
        self.assertEqual([202] * 5, [answer.status for answer in answers])
        found = {answer.body["volume"]["id"] for answer in answers}
        self.assertEqual(found, {row["id"] for row in db_rows.list_volumes()})

    def test_repeated_create_volume_after_lost_message_creates_it(self):
        away = exception.Unavailable(reason="The queue is away.")
        with mock.patch.object(manager_api, "create_volume", side_effect=away):
            self.assert_refused(503, "queue is away", self.make())
        (row,) = db_rows.list_volumes()
        self.assertEqual("creating", row["state"])
        again = self.make()
        self.assertEqual((202, row["id"]), (again.status, again.body["volume"]["id"]))
        self.wait_until_ready(row["id"])
        self.assertEqual(["create"], self.driver.methods)

    def test_repeated_create_volume_after_kill_creates_it(self):
        with (
            mock.patch.object(manager_api, "create_volume", side_effect=backends.ProcessKilled),
            self.assertRaises(backends.ProcessKilled),
        ):
            self.make()
        (row,) = db_rows.list_volumes()
        again = self.make()
        self.assertEqual((202, row["id"]), (again.status, again.body["volume"]["id"]))
        self.wait_until_ready(row["id"])

    def wait_until_ready(self, volume):
        wait_until(lambda: db_rows.get_volume(volume)["state"] == "ready")

    def test_refused_create_volume_is_refused_again(self):
        CONF.set_override("quota_volumes", 0, group="quota")
        first = self.make()
        self.assertEqual(413, first.status, first.raw)
        CONF.set_override("quota_volumes", -1, group="quota")
        again = self.make()
        self.assert_replayed(first, again)
        self.assertEqual(first.headers["retry-after"], again.headers["retry-after"])
        self.assertEqual([], db_rows.list_volumes())

    def test_repeated_create_volume_after_delete_says_it_is_deleted(self):
        identity = self.make().body["volume"]["id"]
        self.wait_until_ready(identity)
        db_rows.remove_all()
        self.assert_refused(404, f"volume {identity}, has been deleted", self.make())
