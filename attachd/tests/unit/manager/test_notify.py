# SPDX-License-Identifier: Apache-2.0
"""What a manager tells of its work."""

import unittest

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.manager import attach, detach, notify, volumes
from attachd.states import Event
from attachd.tests import backends, hearing, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.heard = hearing.use(self)

    def _add(self, state, **values):
        return rows.add_volume(state, owner=backends.HOST, **values)["id"]

    def seen(self, *names):
        return [
            (each["event_type"], *(each["payload"][name] for name in names))
            for each in self.heard.messages()
        ]


class VolumeTest(Case):
    def test_a_volumes_life_is_told_from_beginning_to_end(self):
        volume_id = self._add("creating", name="disk")
        volumes.create(self.backend, volume_id)
        rows.change_volume(volume_id, state="extending", status="extending", new_size_gib=4)
        volumes.extend(self.backend, volume_id)
        rows.change_volume(volume_id, state="deleting", status="deleting")
        volumes.delete(self.backend, volume_id)
        self.assertEqual(
            [
                ("volume.create.start", "creating", 1, "disk"),
                ("volume.create.end", "available", 1, "disk"),
                ("volume.resize.start", "extending", 1, "disk"),
                ("volume.resize.end", "available", 4, "disk"),
                ("volume.delete.start", "deleting", 4, "disk"),
                ("volume.delete.end", "deleted", 4, "disk"),
            ],
            self.seen("status", "size", "display_name"),
        )

    def test_a_new_volume_is_told_of_by_its_pool_and_then_by_its_backend(self):
        volume_id = self._add("creating")
        volumes.create(self.backend, volume_id)
        rows.change_volume(volume_id, state="deleting", status="deleting")
        volumes.delete(self.backend, volume_id)
        publishers = [each["publisher_id"] for each in self.heard.messages()]
        whole, backend = f"volume.{backends.HOST}#pool", f"volume.{backends.HOST}"
        self.assertEqual([whole, whole, backend, backend], publishers)

    def test_what_fails_has_no_end(self):
        works = [("creating", volumes.create, "create"), ("deleting", volumes.delete, "delete"),
                 ("extending", volumes.extend, "extend")]  # fmt: skip
        for state, work, method in works:
            volume_id = self._add(state, new_size_gib=2)
            with self.driver.failing(method):
                work(self.backend, volume_id)
        kinds = ["volume.create.start", "volume.delete.start", "volume.resize.start"]
        self.assertEqual(kinds, self.heard.kinds())

    def test_what_is_late_is_not_told(self):
        volume_id = rows.add_volume()["id"]
        for work in (volumes.create, volumes.extend, volumes.delete):
            work(self.backend, volume_id)
        self.assertEqual([], self.heard.kinds())


class AttachmentTest(Case):
    def test_an_attach_and_a_detach_are_told(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        attach.attach_exclusive(self.backend, row["id"], volume["id"], rows.CONNECTOR)
        attach.attach_exclusive(self.backend, row["id"], volume["id"], rows.CONNECTOR)
        detach.detach(self.backend, row["id"], volume["id"])
        self.assertEqual(
            [
                ("volume.attach.start", "attaching"),
                ("volume.detach.start", "detaching"),
                ("volume.detach.end", "available"),
            ],
            self.seen("status"),
        )

    def test_what_is_refused_is_not_told(self):
        volume = rows.add_volume()
        rows.add_attachment(volume["id"], "attached", instance_uuid="a")
        other = rows.add_attachment(volume["id"], instance_uuid="b")
        with self.assertRaises(exception.NotMultiattach):
            attach.attach(self.backend, other["id"], volume["id"], rows.OTHER_CONNECTOR)
        self.assertEqual([], self.heard.kinds())

    def test_a_detach_that_fails_has_no_end_and_begins_again(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "attached")
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, row["id"], volume["id"])
        detach.detach(self.backend, row["id"], volume["id"])
        start, end = "volume.detach.start", "volume.detach.end"
        self.assertEqual([start, start, end], self.heard.kinds())

    def test_what_recovery_finishes_begins_again(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "connecting")
        attach.finish_attach(self.backend, rows.attachment(row["id"]))
        self.assertEqual(["volume.attach.start"], self.heard.kinds())

    def test_what_no_client_knows_as_an_attachment_is_not_told(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"], "connecting", kind="connection")
        attach.finish_attach(self.backend, rows.attachment(row["id"]))
        self.assertEqual([], self.heard.kinds())

    def test_it_is_told_as_it_is_after_the_move(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        moved = attachments_db.move(
            row["id"], volume["id"], Event.CONNECT, {"connector": rows.CONNECTOR}
        )
        notify.of_attachment(self.backend, "attach.start", moved)
        (message,) = self.heard.messages()
        payload = message["payload"]
        (shown,) = payload["volume_attachment"]
        self.assertEqual(("attaching", "attaching"), (payload["status"], shown["attach_status"]))
        self.assertEqual(f"volume.{backends.HOST}", message["publisher_id"])

    def test_one_that_is_gone_is_not_among_the_volumes(self):
        volume = rows.add_volume()
        row = rows.add_attachment(volume["id"])
        moved = attachments_db.move(row["id"], volume["id"], Event.CANCEL)
        notify.of_the_others(self.backend, "detach.end", moved)
        (message,) = self.heard.messages()
        self.assertEqual([], message["payload"]["volume_attachment"])
        self.assertEqual("available", message["payload"]["status"])
