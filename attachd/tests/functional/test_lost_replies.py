# SPDX-License-Identifier: Apache-2.0
"""Tests of clients that lose a response and repeat the request.

The processes, RabbitMQ and the database are real; the first request is disconnected before its
response, the second one must return the current state.
"""

import json
import socket
import unittest
import urllib.parse

import requests

from attachd.tests.fixtures import deployments
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

SERVER = "11111111-2222-4333-8444-555555555555"
PROJECT = "a" * 32
TOKEN = f"alice:{PROJECT}:member,reader"
VERSION = "volume 3.71"
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:1"}


@full_only("outages")
class LostReplyTest(unittest.TestCase):
    database = "mariadb"

    def setUp(self):
        super().setUp()
        # Each call of this backend takes two seconds: time enough to hang up.
        self.deployment = deployments.Deployment(self, self.database, backend="slow")
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.http = requests.Session()
        self.addCleanup(self.http.close)
        self.http.headers.update({"X-Auth-Token": TOKEN, "OpenStack-API-Version": VERSION})
        answer = self.request("POST", "/volumes", {"volume": {"size": 1}})
        self.volume = answer.json()["volume"]["id"]
        wait_until(lambda: self.volume_status() == "available")

    def request(self, method, path, body=None, **headers):
        url = f"{self.deployment.url}/v3{path}"
        return self.http.request(method, url, json=body, headers=headers, timeout=TIMEOUT)

    def lose(self, method, path, body=None, **headers):
        """Send a request and hang up without reading the answer, once it is being worked on."""
        url = urllib.parse.urlsplit(self.deployment.url)
        sent = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} /v3{path} HTTP/1.1", f"Host: {url.netloc}"]
        lines += [f"{name}: {value}" for name, value in {**self.http.headers, **headers}.items()]
        lines += [f"Content-Length: {len(sent)}", "Content-Type: application/json", "", ""]
        with socket.create_connection((url.hostname, url.port), TIMEOUT) as connection:
            connection.sendall("\r\n".join(lines).encode() + sent)
            status = "detaching" if method == "DELETE" else "attaching"
            wait_until(
                lambda: [attachment["status"] for attachment in self.attachments()] == [status]
            )

    def attachments(self):
        return self.request("GET", "/attachments/detail").json()["attachments"]

    def volume_status(self):
        return self.request("GET", f"/volumes/{self.volume}").json()["volume"]["status"]

    def wanted(self, **more):
        return {"attachment": {"volume_uuid": self.volume, "instance_uuid": SERVER, **more}}

    def reserve(self):
        answer = self.request("POST", "/attachments", self.wanted())
        self.assertEqual(200, answer.status_code, answer.text)
        return answer.json()["attachment"]["id"]

    def test_calls_with_lost_response_can_be_repeated(self):
        identity = self.reserve()
        url, body = f"/attachments/{identity}", {"attachment": {"connector": CONNECTOR}}
        # PUT: the second waits for the first, the third is answered from the row.
        self.lose("PUT", url, body)
        second, third = self.request("PUT", url, body), self.request("PUT", url, body)
        self.assertEqual((200, 200), (second.status_code, third.status_code), second.text)
        found = [item.json()["attachment"]["connection_info"] for item in (second, third)]
        self.assertEqual(found[0], found[1])
        self.assertEqual(identity, found[0]["attachment_id"])
        # DELETE: the second waits for the first, and finds nothing then.
        self.lose("DELETE", url)
        self.assertEqual(404, self.request("DELETE", url).status_code)
        self.assertEqual(404, self.request("DELETE", url).status_code)
        self.assertEqual([], self.attachments())
        self.assertEqual("available", self.volume_status())

    def test_post_with_lost_response_is_repeated_with_key_or_for_the_same_host(self):
        body = self.wanted(connector=CONNECTOR)
        for headers in ({"Idempotency-Key": '"8e03978e"'}, {}):
            with self.subTest(headers):
                self.lose("POST", "/attachments", body, **headers)
                (row,) = self.attachments()
                again = self.request("POST", "/attachments", body, **headers)
                self.assertEqual(200, again.status_code, again.text)
                self.assertEqual(row["id"], again.json()["attachment"]["id"])
                self.assertNotEqual({}, again.json()["attachment"]["connection_info"])
                self.assertEqual(
                    [row["id"]], [attachment["id"] for attachment in self.attachments()]
                )
                self.request("DELETE", f"/attachments/{row['id']}")
        self.assertEqual("available", self.volume_status())

    def test_idempotency_key_survives_kill_of_the_api(self):
        body = self.wanted(connector=CONNECTOR)
        headers = {"Idempotency-Key": "8e03978e"}
        self.lose("POST", "/attachments", body, **headers)
        (row,) = self.attachments()
        self.deployment.server.kill()
        self.http.close()
        self.deployment.start_gunicorn()
        again = self.request("POST", "/attachments", body, **headers)
        self.assertEqual(200, again.status_code, again.text)
        self.assertEqual(row["id"], again.json()["attachment"]["id"])
        self.assertEqual([row["id"]], [attachment["id"] for attachment in self.attachments()])

    def test_async_call_survives_kill_of_the_manager(self):
        body, later = self.wanted(connector=CONNECTOR), {"Prefer": "respond-async"}
        made = self.request("POST", "/attachments", body, **later)
        self.assertEqual(202, made.status_code, made.text)
        self.assertEqual("attaching", made.json()["attachment"]["status"])
        self.manager.kill()
        self.deployment.start_manager()
        url = f"/attachments/{made.json()['attachment']['id']}"
        wait_until(lambda: self.request("GET", url).json()["attachment"]["connection_info"])
        deleted = self.request("DELETE", url, **later)
        self.assertEqual(202, deleted.status_code, deleted.text)
        self.assertEqual("respond-async", deleted.headers["Preference-Applied"])
        wait_until(lambda: self.request("GET", url).status_code == 404)
        self.assertEqual("available", self.volume_status())


class LostReplyOnPostgresqlTest(LostReplyTest):
    database = "postgresql"
