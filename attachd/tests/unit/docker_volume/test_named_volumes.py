# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from attachd.docker_volume.named_volumes import NamedVolumes, is_adopted, name_of
from attachd.platforms.calls import CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage, make_attachment

METADATA = {"docker.volume": "true", "docker.name": "data"}


class NamedVolumesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.named = NamedVolumes(self.storage, 10)

    def create(self, name="data", **given):
        if not self.storage.volumes:
            self.storage.statuses = ["creating", "available"]
        return self.named.create(name, given)

    def failed(self, call, *arguments):
        """Return code and message of a call that fails."""
        with self.assertRaises(CallError) as caught:
            call(*arguments)
        return caught.exception.code.name, f"{caught.exception}"

    def test_volume_is_created_once_with_default_size(self):
        first, again = self.create(), self.create()
        self.assertEqual((first.id, 10, "data"), (again.id, again.size_gib, name_of(again)))
        self.assertEqual([first.id], [volume.id for volume in self.named.list_all()])
        self.assertFalse(is_adopted(first))

    def test_created_volume_with_other_option_exists(self):
        volume = self.create(size="1")
        code, text = self.failed(self.named.create, "data", {"size": "2"})
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertEqual(f"Volume data exists as {volume.id}, and its size is 1 GiB.", text)

    def test_existing_volume_is_adopted_by_name_or_id_and_forgotten(self):
        volume = self.storage.add(name="data", size_gib=3)
        for name in ("data", volume.id):
            self.assertIsNone(self.named.find(name))
            self.assertEqual([], self.named.list_all())
            adopted = self.named.create(name, {"size": "3", "mode": "ro"})
            self.assertEqual((volume.id, name), (adopted.id, name_of(adopted)))
            self.assertTrue(is_adopted(adopted))
            self.named.create(name, {"mode": "ro"})
            self.named.remove(self.named.get(name))
            self.assertEqual({}, self.storage.volumes[volume.id].metadata)

    def test_volume_that_csi_has_published_is_not_adopted(self):
        volume = self.storage.add(name="data", metadata={"csi.published": "true"})
        code, text = self.failed(self.named.create, volume.id, {})
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertIn("attachd-csi has it (metadata csi.published)", text)

    def test_volume_that_csi_publishes_meanwhile_is_forgotten_again(self):
        volume = self.storage.add(name="data")
        add = self.storage.volumes.add_metadata

        def add_both(volume_id, pairs):
            add(volume_id, {**pairs, "csi.published": "true"})

        with mock.patch.object(self.storage.volumes, "add_metadata", add_both):
            self.assertEqual("ALREADY_EXISTS", self.failed(self.named.create, "data", {})[0])
        self.assertEqual({"csi.published": "true"}, self.storage.volumes[volume.id].metadata)

    def test_adopted_volume_in_error_is_never_deleted(self):
        volume = self.storage.add(name="data")
        self.named.create("data", {})
        self.storage.change(volume.id, status="error")
        self.assertEqual(volume.id, self.named.create("data", {}).id)
        self.assertEqual([volume.id], list(self.storage.volumes))

    def test_existing_volume_that_differs_is_not_adopted(self):
        for values, given, reason in (
            ({"size_gib": 3}, {"size": "2"}, "its size is 3 GiB"),
            ({"status": "error"}, {}, "its status is error"),
            ({"metadata": {"docker.name": "other"}}, {}, "Docker has it as other"),
        ):
            self.storage.volumes.clear()
            self.storage.add(name="data", **values)
            code, text = self.failed(self.named.create, "data", given)
            self.assertEqual("ALREADY_EXISTS", code)
            self.assertIn(reason, text)

    def test_volume_that_another_host_creates_at_the_same_time_is_waited_for(self):
        self.storage.statuses = ["creating", "available"]
        find, created = self.named.find, []

        def find_and_lose_race(name):
            found = find(name)
            if not created:
                created.append(self.storage.add(name=name, status="creating", metadata=METADATA))
            return found

        with mock.patch.object(self.named, "find", find_and_lose_race):
            volume = self.named.create("data", {})
        self.assertEqual((created[0].id, "available"), (volume.id, volume.status))
        self.assertFalse(is_adopted(volume))

    def test_volume_of_csi_is_not_adopted(self):
        other = self.storage.add(name="data", metadata={"csi.id": "digest"})
        self.storage.statuses = ["available"]
        self.assertNotEqual(other.id, self.named.create("data", {}).id)
        code, text = self.failed(self.named.create, other.id, {})
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertIn("attachd-csi has it (metadata csi.id)", text)
        self.assertEqual({"csi.id": "digest"}, self.storage.volumes[other.id].metadata)

    def test_ambiguous_name_is_refused_with_ids(self):
        ids = [self.storage.add(name="data").id for _ in range(2)]
        code, text = self.failed(self.named.create, "data", {})
        self.assertEqual("FAILED_PRECONDITION", code)
        self.assertIn(f"2 volumes have the name data: {', '.join(ids)}.", text)
        for volume_id in ids:
            self.storage.change(volume_id, metadata={"docker.name": "data"})
        self.assertIn("Delete this key", self.failed(self.named.find, "data")[1])

    def test_volume_that_is_being_deleted_is_none(self):
        volume = self.create()
        self.storage.change(volume.id, status="deleting")
        self.assertIsNone(self.named.find("data"))
        self.assertEqual([], self.named.list_all())
        self.assertEqual("NOT_FOUND", self.failed(self.named.get, "data")[0])

    def test_created_volume_is_deleted(self):
        volume = self.create()
        self.storage.statuses = []
        self.named.remove(volume)
        self.assertEqual({}, self.storage.volumes)

    def test_attached_volume_is_not_removed(self):
        volume = self.create()
        self.storage.attached.append(make_attachment(volume.id, "web-2"))
        code, text = self.failed(self.named.remove, volume)
        self.assertEqual("FAILED_PRECONDITION", code)
        self.assertIn("attached to web-2, and is not removed", text)
        self.assertEqual([volume.id], list(self.storage.volumes))
