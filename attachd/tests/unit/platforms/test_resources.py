# SPDX-License-Identifier: Apache-2.0
import unittest
from urllib import parse
import uuid

from attachd.platforms import resources
from attachd.platforms.calls import CallError
from attachd.platforms.resources import Resources
from attachd.tests.unit.platforms.fake_storage import FakeApi, make_snapshot, refusal


def _snapshots(api):
    return Resources(api, "snapshot", lambda shown: make_snapshot(id=shown["id"]))


class ResourcesTest(unittest.TestCase):
    def query(self, api):
        """Return the parameters of the last request."""
        return dict(parse.parse_qsl(parse.urlsplit(api.asked[-1][1]).query))

    def test_missing_resource_is_none_and_only_ids_are_asked_for(self):
        api = FakeApi(refusal(404, "snapshot_not_found"))
        self.assertIsNone(_snapshots(api).get(str(uuid.uuid4())))
        self.assertIsNone(_snapshots(api).get("../types"))
        self.assertEqual(1, len(api.asked))

    def test_refused_read_is_an_error(self):
        with self.assertRaises(CallError):
            _snapshots(FakeApi(refusal(403))).get(str(uuid.uuid4()))

    def test_resource_is_that_of_the_answer(self):
        resource_id = str(uuid.uuid4())
        api = FakeApi({"snapshot": {"id": resource_id}})
        found = _snapshots(api).get(resource_id)
        assert found is not None
        self.assertEqual(resource_id, found.id)
        self.assertEqual(f"/snapshots/{resource_id}", api.asked[0][1])

    def test_resources_of_all_pages_are_found_by_metadata(self):
        first = {"snapshots": [{"id": "1"}], "snapshots_links": [{}]}
        api = FakeApi(first, {"snapshots": [{"id": "2"}]})
        found = _snapshots(api).find({"csi.id": "x"})
        self.assertEqual(["1", "2"], [item.id for item in found])
        expected = {"marker": "1", "sort": "created_at:asc,id:asc", "metadata": "{'csi.id': 'x'}"}
        self.assertEqual(expected, self.query(api))

    def test_page_is_limited_and_says_whether_more_follow(self):
        first = {"snapshots": [{"id": "1"}], "snapshots_links": [{}]}
        api = FakeApi(first, {"snapshots": []})
        page = _snapshots(api).page(1, None, volume_id="v")
        self.assertEqual((["1"], True), ([item.id for item in page.items], page.has_more))
        self.assertEqual("1", self.query(api)["limit"])
        self.assertEqual("v", self.query(api)["volume_id"])
        self.assertEqual(([], False), _snapshots(api).page(0, "1"))
        self.assertNotIn("limit", self.query(api))

    def test_creation_has_key_and_returns_id(self):
        api = FakeApi({"snapshot": {"id": "s"}})
        self.assertEqual("s", _snapshots(api).create({"volume_id": "v"}, "k"))
        self.assertEqual(("POST", "/snapshots", {"snapshot": {"volume_id": "v"}}), api.asked[0])
        self.assertEqual({"Idempotency-Key": '"k"'}, api.headers)

    def test_metadata_are_added_and_deleted_also_if_gone(self):
        api = FakeApi(None, None, refusal(404), refusal(409))
        snapshots = _snapshots(api)
        snapshots.add_metadata("s", {"a": "b"})
        self.assertEqual(("POST", "/snapshots/s/metadata", {"metadata": {"a": "b"}}), api.asked[0])
        for _ in range(2):
            snapshots.delete_metadata("s", "a b")
        self.assertEqual(("DELETE", "/snapshots/s/metadata/a%20b", None), api.asked[1])
        with self.assertRaises(CallError):
            snapshots.delete_metadata("s", "a")

    def test_deletion_is_requested(self):
        api = FakeApi(None)
        _snapshots(api).delete("s")
        self.assertEqual([("DELETE", "/snapshots/s", None)], api.asked)

    def test_failure_is_last_message_to_user(self):
        api = FakeApi({"messages": [{"user_message": "Full."}, {}]}, {"messages": []})
        self.assertEqual("Full.", _snapshots(api).find_failure("s"))
        self.assertEqual("", _snapshots(api).find_failure("s"))

    def test_messages_name_kind_and_id(self):
        self.assertEqual("Snapshot s", _snapshots(FakeApi()).describe("s"))

    def test_ids_are_uuids_in_their_usual_form(self):
        self.assertTrue(resources.is_id(str(uuid.uuid4())))
        for text in ("", "none", str(uuid.uuid4()).upper(), uuid.uuid4().hex):
            self.assertFalse(resources.is_id(text), text)
