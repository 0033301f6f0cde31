# SPDX-License-Identifier: Apache-2.0
"""The requests to the API."""

import copy
import json
import types
import unittest

from openstack import exceptions
import requests

from attachd.cli.blockstorage import ATTACHD_1_0, ATTACHD_IF_ANY, BlockStorage


def answer(status=200, body=None):
    made = requests.Response()
    made.status_code = status
    made.request = requests.Request("GET", "http://127.0.0.1/v3/attachments").prepare()
    made.headers["Content-Type"] = "application/json"
    made._content = b"" if body is None else json.dumps(body).encode()
    return made


class Proxy:
    """Stands in for openstacksdk's block storage."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = list(answers)

    def request(self, url, method, raise_exc=True, **request):
        # The caller may change what it has handed over.
        self.asked.append((method, url, copy.deepcopy(request)))
        return self._answers.pop(0)

    def find_volume(self, name_or_id, ignore_missing=True, all_projects=False):
        return types.SimpleNamespace(id=f"id of {name_or_id}")


class BlockStorageTest(unittest.TestCase):
    def storage(self, *answers):
        self.proxy = Proxy(*answers)
        return BlockStorage(types.SimpleNamespace(block_storage=self.proxy))

    def test_create_with_mode_uses_later_microversion(self):
        made = answer(body={"attachment": {"id": "a1"}})
        storage = self.storage(made, made)
        storage.create({"volume_uuid": "v"})
        storage.create({"volume_uuid": "v", "mode": "ro"})
        versions = [request["microversion"] for _method, _url, request in self.proxy.asked]
        self.assertEqual(["3.44", "3.54"], versions)

    def test_create_sends_new_idempotency_key_each_time(self):
        made = answer(body={"attachment": {"id": "a1"}})
        storage = self.storage(made, made)
        storage.create({"volume_uuid": "v"})
        storage.create({"volume_uuid": "v"})
        keys = {request["headers"]["Idempotency-Key"] for *_, request in self.proxy.asked}
        self.assertEqual(2, len(keys))

    def test_create_with_host_sends_version_of_attachd(self):
        storage = self.storage(answer(body={"attachment": {"id": "a1"}}))
        self.assertEqual({"id": "a1"}, storage.create({"volume_uuid": "v", "host": "node1"}))
        method, url, request = self.proxy.asked[0]
        self.assertEqual(("POST", "/attachments"), (method, url))
        self.assertEqual({"attachment": {"volume_uuid": "v", "host": "node1"}}, request["json"])
        self.assertLessEqual(ATTACHD_1_0.items(), request["headers"].items())
        self.assertNotIn("microversion", request)

    def test_create_with_expires_in_sends_version_of_attachd(self):
        storage = self.storage(answer(body={"attachment": {"id": "a1"}}))
        storage.create({"volume_uuid": "v", "expires_in": 60})
        request = self.proxy.asked[0][2]
        self.assertLessEqual(ATTACHD_1_0.items(), request["headers"].items())

    def test_show_asks_for_fields_of_attachd(self):
        storage = self.storage(answer(body={"attachment": {"id": "a1"}}))
        storage.show("a1")
        version = self.proxy.asked[0][2]["headers"]["OpenStack-API-Version"]
        self.assertEqual("volume 3.44, attachd 1.1", version)

    def test_attachments_reads_all_pages(self):
        pages = [[{"id": "3"}, {"id": "2"}], [{"id": "1"}], []]
        storage = self.storage(*(answer(body={"attachments": page}) for page in pages))
        found = storage.attachments({"volume_id": "v"})
        self.assertEqual(["3", "2", "1"], [item["id"] for item in found])
        self.assertEqual(
            [None, "2", "1"],
            [request["params"].get("marker") for *_, request in self.proxy.asked],
        )

    def test_attachments_with_limit_reads_one_page(self):
        storage = self.storage(answer(body={"attachments": [{"id": "3"}]}))
        self.assertEqual([{"id": "3"}], storage.attachments({"limit": "1"}, detail=True))
        self.assertEqual("/attachments/detail", self.proxy.asked[0][1])

    def test_show_quotes_id_in_path(self):
        storage = self.storage(answer(404, {"itemNotFound": {"message": "none"}}))
        with self.assertRaises(exceptions.NotFoundException):
            storage.show("../volumes")
        self.assertEqual("/attachments/..%2Fvolumes", self.proxy.asked[0][1])

    def test_complete_accepts_empty_answer(self):
        storage = self.storage(answer(204))
        storage.complete("a1")
        method, url, request = self.proxy.asked[0]
        self.assertEqual(("POST", "/attachments/a1/action"), (method, url))
        self.assertEqual({"os-complete": None}, request["json"])
        self.assertEqual(ATTACHD_IF_ANY, request["headers"])

    def test_delete_refusal_has_message_of_service(self):
        storage = self.storage(answer(409, {"conflictingRequest": {"message": "it is in use"}}))
        with self.assertRaisesRegex(exceptions.ConflictException, "it is in use"):
            storage.delete("a1")

    def test_agents_and_agent_read_bodies(self):
        storage = self.storage(
            answer(body={"agents": [{"host": "node1"}]}), answer(body={"agent": {"host": "node1"}})
        )
        self.assertEqual([{"host": "node1"}], storage.agents())
        self.assertEqual({"host": "node1"}, storage.agent("node1"))
        self.assertEqual(
            ["/agents", "/agents/node1"], [url for _method, url, _request in self.proxy.asked]
        )

    def test_events_skips_cache_and_has_timeout_above_wait(self):
        storage = self.storage(answer(body={"events": [{"revision": 5}], "revision": 6}))
        self.assertEqual(([{"revision": 5}], 6), storage.events({"since": "4"}, 50))
        ((method, url, request),) = self.proxy.asked
        self.assertEqual(("GET", "/events"), (method, url))
        self.assertEqual({"since": "4"}, request["params"])
        self.assertEqual(ATTACHD_1_0, request["headers"])
        self.assertGreater(request["timeout"], 50)
        self.assertTrue(request["skip_cache"])

    def test_events_of_service_without_events_raises_error(self):
        storage = self.storage(answer(404, {"itemNotFound": {"message": "no such page"}}))
        with self.assertRaisesRegex(exceptions.SDKException, "has no events.*no such page"):
            storage.events({})

    def test_timeline_reads_body(self):
        storage = self.storage(answer(body={"timeline": [{"type": "reserved"}]}))
        self.assertEqual([{"type": "reserved"}], storage.timeline("a1"))
        self.assertEqual("/attachments/a1/timeline", self.proxy.asked[0][1])
