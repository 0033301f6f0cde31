# SPDX-License-Identifier: Apache-2.0
import datetime
import unittest
from urllib import parse
import uuid

from attachd.platforms.calls import CallError
from attachd.platforms.storage import Storage, StoredSnapshot
from attachd.tests.unit.platforms.fake_storage import (
    FakeApi,
    make_attachment,
    make_volume,
    refusal,
)


def _attachment(**values):
    return {
        "id": "a",
        "volume_id": "v",
        "status": "attached",
        "attach_mode": "rw",
        "agent": None,
        "attached_host": None,
        "created_at": "2026-01-02T03:04:05.000000",
        "condition": None,
        **values,
    }


def _volume(volume_id, **values):
    return {
        "id": volume_id,
        "name": None,
        "status": "available",
        "size": 1,
        "availability_zone": None,
        "volume_type": "fast",
        "volume_type_id": "f-1",
        "multiattach": False,
        "metadata": {},
        **values,
    }


class StorageTest(unittest.TestCase):
    def test_attachments_of_all_pages_are_read(self):
        first = {"attachments": [_attachment()], "attachments_links": [{}]}
        api = FakeApi(first, {"attachments": [_attachment(id="b", agent="one", attach_mode="ro")]})
        one, two = Storage(api).attachments("v")
        self.assertEqual((None, None, "rw"), (one.node, one.host, one.mode))
        self.assertEqual(("one", "one", "ro"), (two.node, two.host, two.mode))
        self.assertEqual(datetime.UTC, one.created_at.tzinfo)
        self.assertIn("marker=a", api.asked[1][1])

    def test_attachments_of_node_are_asked_for(self):
        api = FakeApi({"attachments": []})
        self.assertEqual([], list(Storage(api).attachments(node="one")))
        self.assertIn("agent=one", api.asked[0][1])

    def test_volumes_of_all_pages_are_found_by_name_or_id(self):
        by_id = str(uuid.uuid4())
        first = {"volumes": [_volume("1", name="data")], "volumes_links": [{}]}
        api = FakeApi(first, {"volumes": [_volume("2", name="data"), _volume("3", name="Data")]})
        self.assertEqual(["1", "2"], [found.id for found in Storage(api).find_named("data")])
        query = parse.parse_qs(parse.urlsplit(api.asked[1][1]).query)
        self.assertEqual((["data"], ["1"]), (query["name"], query["marker"]))
        api = FakeApi({"volumes": []}, {"volume": _volume(by_id)})
        (found,) = Storage(api).find_named(by_id)
        self.assertEqual((by_id, {"fast", "f-1"}), (found.id, found.type_names))

    def test_type_is_found_by_name_or_id(self):
        shared = {"id": "1", "name": "fast", "extra_specs": {"multiattach": "<is> True"}}
        for name in ("fast", "1"):
            self.assertTrue(Storage(FakeApi({"volume_types": [shared]})).is_type_shared(name))
        self.assertTrue(Storage(FakeApi({"volume_type": shared})).is_type_shared(None))
        self.assertFalse(Storage(FakeApi(refusal(404))).is_type_shared(None))
        with self.assertRaisesRegex(CallError, "no volume type: slow"):
            Storage(FakeApi({"volume_types": [shared]})).is_type_shared("slow")

    def test_fencing_is_that_of_backend_of_volume(self):
        pools = {"pools": [{"name": "a@x#p", "capabilities": {"fencing": "proved"}}]}
        for backend, expected in (("a@x#p", "proved"), ("b@x#p", ""), (None, "")):
            volume = make_volume(backend=backend)
            self.assertEqual(expected, Storage(FakeApi(pools)).fencing(volume))

    def test_names_of_nodes_are_quoted(self):
        api = FakeApi({"fence": {"attachments": []}})
        self.assertEqual([], Storage(api).fence("a/b", "why"))
        self.assertEqual("/hosts/a%2Fb/fence", api.asked[0][1])

    def test_only_old_reservations_are_lost(self):
        old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        for status, created_at, expected in (
            ("reserved", old, True),
            ("attached", old, False),
            ("reserved", old + datetime.timedelta(hours=1), False),
        ):
            found = make_attachment("v", status=status, created_at=created_at)
            self.assertEqual(expected, found.is_older_reservation(60.0))

    def test_snapshot_has_time_in_utc(self):
        shown = {
            "id": "s",
            "status": "available",
            "volume_id": "v",
            "size": 2,
            "created_at": "2026-01-02T03:04:05.000000",
            "metadata": {"a": "b"},
        }
        found = StoredSnapshot.from_body(shown)
        self.assertEqual(("s", "v", 2), (found.id, found.volume_id, found.size_gib))
        self.assertEqual("2026-01-02T03:04:05+00:00", found.created_at.isoformat())
