# SPDX-License-Identifier: Apache-2.0
"""Tests of attachments whose secrets cannot be decrypted, over HTTP."""

import logging
from unittest import mock

import sqlalchemy as sa

from attachd.db.engine import session
from attachd.db.secrets import encryption, key_file, rotation
from attachd.tests.fixtures import db_rows, key_files, wsgi_api
from attachd.tests.functional.api_case import ApiCase

ISCSI = {"driver_volume_type": "iscsi", "data": {"auth_password": "pass-word"}}
CONNECTOR = db_rows.CONNECTOR
AUTH = "auth_password"


class LostKeyTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        grant = mock.patch.object(self.driver, "grant", return_value=ISCSI)
        self.grant = self.enterContext(grant)
        self.volume = self.add_volume()
        self.lost = self.attach(self.volume).body["attachment"]["id"]
        self.lost_name = key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)

    def add_volume(self, **values):
        return db_rows.add_volume(host=f"{self.api.backend.host}#pool", **values)["id"]

    def attach(self, volume):
        body = {"attachment": {"volume_uuid": volume, "connector": CONNECTOR}}
        return self.expect(200, "POST", "/attachments", body)

    def secrets(self):
        """Return the secrets that the driver received."""
        return [call.args[1].secret for call in self.grant.call_args_list]

    def assert_refused(self, answer):
        self.assertEqual(503, answer.status, answer.raw)
        self.assertIn("retry-after", answer.headers)
        for part in (self.lost_name, "(path)", "[secrets] key_file", "connect again"):
            self.assertIn(part, answer.fault)

    def test_show_attachment_with_lost_key_omits_connection_info_and_says_why(self):
        self.assert_refused(self.api.request("GET", f"/attachments/{self.lost}"))

    def test_repeated_connect_with_lost_key_says_why_and_changes_nothing(self):
        before = db_rows.get_attachment(self.lost)
        body = {"attachment": {"connector": CONNECTOR}}
        self.assert_refused(self.api.request("PUT", f"/attachments/{self.lost}", body))
        self.assertEqual(before, db_rows.get_attachment(self.lost))

    def test_list_attachments_with_lost_key_works(self):
        other = self.attach(self.add_volume()).body["attachment"]["id"]
        with self.assertLogs("attachd", logging.WARNING) as logged:
            answer = self.api.request("GET", "/attachments/detail")
        shown = {
            attachment["id"]: attachment["connection_info"]
            for attachment in answer.body["attachments"]
        }
        self.assertEqual({}, shown[self.lost])
        self.assertEqual("pass-word", shown[other][AUTH])
        self.assertIn(self.lost, str(logged.output))
        self.assertEqual(200, self.api.request("GET", "/attachments").status)
        for path in (f"/volumes/{self.volume}", "/volumes/detail"):
            self.assertEqual(200, self.api.request("GET", path).status)

    def test_delete_attachment_with_lost_key_works_and_the_next_gets_a_new_secret(self):
        path = f"/attachments/{self.lost}"
        done = self.api.request("POST", f"{path}/action", {"os-complete": {}})
        self.assertEqual(204, done.status)
        self.assertEqual(200, self.api.request("DELETE", path).status)
        made = self.attach(self.volume).body["attachment"]
        self.assertEqual("pass-word", made["connection_info"][AUTH])
        self.assertEqual(2, len(set(self.secrets())))
        self.assertEqual(200, self.api.request("GET", f"/attachments/{made['id']}").status)

    def test_async_delete_attachment_with_lost_key_works(self):
        answer = self.api.request(
            "DELETE",
            f"/attachments/{self.lost}",
            version=f"{wsgi_api.LATEST}, attachd 1.0",
            prefer="respond-async",
        )
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual({}, answer.body["attachment"]["connection_info"])

    def test_legacy_connection_with_lost_key_can_be_recreated(self):
        volume = self.add_volume()
        opened = {"os-initialize_connection": {"connector": CONNECTOR}}
        action = f"/volumes/{volume}/action"
        self.assertEqual(200, self.api.request("POST", action, opened).status)
        self.lost_name = key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)
        self.assert_refused(self.api.request("POST", action, opened))
        closed = {"os-terminate_connection": {"connector": CONNECTOR}}
        self.assertEqual(202, self.api.request("POST", action, closed).status)
        answer = self.api.request("POST", action, opened)
        self.assertEqual("pass-word", answer.body["connection_info"]["data"][AUTH])

    def test_restored_key_is_used_without_restart(self):
        made = self.add_volume()
        attachment = self.attach(made).body["attachment"]["id"]
        key = self.file.read_text()
        key_files.replace_all_keys(self.file)
        self.lost_name = key_files.key_ids(self.file)[0]
        self.assertEqual(503, self.api.request("GET", f"/attachments/{attachment}").status)
        with self.file.open("a", encoding="ascii") as file:
            file.write(key)
        answer = self.api.request("GET", f"/attachments/{attachment}")
        self.assertEqual("pass-word", answer.body["attachment"]["connection_info"][AUTH])

    def test_shared_connection_with_lost_key_gets_no_other_secret(self):
        volume = self.add_volume(multiattach=True)
        with mock.patch.object(self.api.backend.driver, "connection_key", return_value="one"):
            first = self.attach(volume).body["attachment"]["id"]
            lost = key_files.key_ids(self.file)[0]
            key_files.replace_all_keys(self.file)
            body = {"attachment": {"volume_uuid": volume, "connector": CONNECTOR}}
            self.lost_name = lost
            self.assert_refused(self.api.request("POST", "/attachments", body))
            for row in db_rows.list_attachments(volume):
                answer = self.api.request("DELETE", f"/attachments/{row['id']}")
                self.assertEqual(200, answer.status, answer.raw)
            self.assertNotIn(first, [row["id"] for row in db_rows.list_attachments()])
            self.attach(volume)


class MovedValuesTest(ApiCase):
    """Values of the database that were changed by another program."""

    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        self.first, self.second = (
            self.create_attachment(db_rows.add_volume()["id"], connector=db_rows.CONNECTOR)
            for _ in range(2)
        )

    def write(self, statement, **values):
        with session.writer() as connection:
            connection.execute(sa.text(statement), values)

    def show(self, identity, status):
        return self.expect(status, "GET", f"/attachments/{identity}")

    def test_connection_of_another_row_is_refused_and_others_work(self):
        (first, _second) = key_files.stored_column("connection_info")
        self.write(
            "UPDATE attachments SET connection_info = :text WHERE id = :id",
            text=first,
            id=self.second,
        )
        self.assertIn("moved in the database", self.show(self.second, 503).fault)
        self.show(self.first, 200)
        self.assertEqual(2, len(self.expect(200, "GET", "/attachments").body["attachments"]))
        self.expect(200, "DELETE", f"/attachments/{self.second}")

    def test_plain_text_is_refused_after_rotation(self):
        forged = '{"driver_volume_type": "iscsi", "data": {}}'
        change = "UPDATE attachments SET connection_info = :text WHERE id = :id"
        self.write(change, text=forged, id=self.second)
        self.show(self.second, 200)
        self.assertTrue(rotation.rotate().is_complete)
        key_file.refuse_plain_text(str(self.file))
        encryption.reset()
        self.show(self.second, 200)
        self.write(change, text=forged, id=self.second)
        self.assertIn("not encrypted for it", self.show(self.second, 503).fault)
        self.show(self.first, 200)
        self.expect(200, "DELETE", f"/attachments/{self.second}")
