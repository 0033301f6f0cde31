# SPDX-License-Identifier: Apache-2.0
import datetime
import unittest
import uuid

from attachd.platforms import storage
from attachd.platforms.calls import CallError
from attachd.platforms.storage import Storage
from attachd.tests.unit.platforms.fake_storage import make_attachment, make_volume, refusal


class _Api:
    """An API with prepared answers; an error is raised.

    :ivar asked: method, path and body of the requests
    """

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    def ask(self, method, path, body=None, _headers=None):
        self.asked.append((method, path, body))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


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
    def test_missing_volume_is_none_and_only_ids_are_asked_for(self):
        api = _Api(refusal(404, "volume_not_found"))
        self.assertIsNone(Storage(api).volume(str(uuid.uuid4())))
        self.assertIsNone(Storage(api).volume("../types"))
        self.assertEqual(1, len(api.asked))

    def test_attachments_of_all_pages_are_read(self):
        first = {"attachments": [_attachment()], "attachments_links": [{}]}
        api = _Api(first, {"attachments": [_attachment(id="b", agent="one", attach_mode="ro")]})
        one, two = Storage(api).attachments("v")
        self.assertEqual((None, None, "rw"), (one.node, one.host, one.mode))
        self.assertEqual(("one", "one", "ro"), (two.node, two.host, two.mode))
        self.assertEqual(datetime.UTC, one.created_at.tzinfo)
        self.assertIn("marker=a", api.asked[1][1])

    def test_attachments_of_node_are_asked_for(self):
        api = _Api({"attachments": []})
        self.assertEqual([], list(Storage(api).attachments(node="one")))
        self.assertIn("agent=one", api.asked[0][1])

    def test_volumes_of_all_pages_are_found_by_name_or_id(self):
        by_id = str(uuid.uuid4())
        first = {"volumes": [_volume("1", name="data")], "volumes_links": [{}]}
        api = _Api(first, {"volumes": [_volume("2", name="data"), _volume("3", name="Data")]})
        self.assertEqual(["1", "2"], [found.id for found in Storage(api).find_named("data")])
        self.assertIn("name=data&marker=1", api.asked[1][1])
        api = _Api({"volumes": []}, {"volume": _volume(by_id)})
        (found,) = Storage(api).find_named(by_id)
        self.assertEqual((by_id, {"fast", "f-1"}), (found.id, found.type_names))

    def test_metadata_that_is_gone_is_deleted(self):
        api = _Api(None, refusal(404), refusal(409))
        for _ in range(2):
            Storage(api).delete_metadata("v", "a b")
        self.assertEqual(("DELETE", "/volumes/v/metadata/a%20b", None), api.asked[0])
        with self.assertRaises(CallError):
            Storage(api).delete_metadata("v", "a")

    def test_type_is_found_by_name_or_id(self):
        shared = {"id": "1", "name": "fast", "extra_specs": {"multiattach": "<is> True"}}
        for name in ("fast", "1"):
            self.assertTrue(Storage(_Api({"volume_types": [shared]})).is_type_shared(name))
        self.assertTrue(Storage(_Api({"volume_type": shared})).is_type_shared(None))
        self.assertFalse(Storage(_Api(refusal(404))).is_type_shared(None))
        with self.assertRaisesRegex(CallError, "no volume type: slow"):
            Storage(_Api({"volume_types": [shared]})).is_type_shared("slow")

    def test_fencing_is_that_of_backend_of_volume(self):
        pools = {"pools": [{"name": "a@x#p", "capabilities": {"fencing": "proved"}}]}
        for backend, expected in (("a@x#p", "proved"), ("b@x#p", ""), (None, "")):
            volume = make_volume(backend=backend)
            self.assertEqual(expected, Storage(_Api(pools)).fencing(volume))

    def test_names_of_nodes_are_quoted(self):
        api = _Api({"fence": {"attachments": []}})
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

    def test_ids_are_uuids_in_their_usual_form(self):
        self.assertTrue(storage.is_id(str(uuid.uuid4())))
        for text in ("", "none", str(uuid.uuid4()).upper(), uuid.uuid4().hex):
            self.assertFalse(storage.is_id(text), text)
