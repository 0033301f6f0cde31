# SPDX-License-Identifier: Apache-2.0
"""Transfers of volumes: their rows, and the state of their volumes."""

from attachd import exception
from attachd.db import quotas
from attachd.db.engine import paging
from attachd.db.types import type_store
from attachd.db.volumes import transfer_store, volume_store
from attachd.db.volumes.transfer_store import Acceptor
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

PLAIN = {"name": None, "no_snapshots": False}
OTHER = Acceptor("other", "eve", sees_all_types=False)


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=2, error="old")["id"]

    def offer(self, volume=None, **values):
        return transfer_store.create(volume or self.volume, db_rows.PROJECT, {**PLAIN, **values})

    def status(self):
        return db_rows.get_volume(self.volume)["status"]


class CreateTest(Case):
    def test_row_has_a_digest_of_the_key_with_a_salt_of_its_own(self):
        one, two = self.offer(), self.offer(db_rows.add_volume()["id"])
        self.assertNotEqual(one.auth_key, two.auth_key)
        self.assertNotEqual(one.row["salt"], two.row["salt"])
        self.assertEqual(one.row, transfer_store.get(one.row["id"], db_rows.PROJECT))
        self.assertNotIn(one.auth_key, f"{one.row}")
        transfer_store.check_key(one.row, one.auth_key)
        for key in (two.auth_key, "", one.auth_key + "0"):
            with self.assertRaises(exception.InvalidAuthKey):
                transfer_store.check_key(one.row, key)

    def test_only_available_volume_without_rows_of_attachments_is_offered(self):
        for state in ("reserved", "attached", "connect_failed", "disconnect_failed"):
            volume = db_rows.add_volume()["id"]
            db_rows.add_attachment(volume, state)
            with self.subTest(state), self.assertRaises(exception.InvalidVolume):
                self.offer(volume)
        with self.assertRaisesRegex(exception.InvalidVolume, "extending"):
            self.offer(db_rows.add_volume("extending")["id"])
        db_rows.add_volume("creating", source_volid=self.volume)
        with self.assertRaisesRegex(exception.InvalidVolume, "copied"):
            self.offer()
        with self.assertRaises(exception.VolumeNotFound):
            transfer_store.create(self.volume, "other", PLAIN)
        self.assertEqual([], transfer_store.page({}, paging.Page(9)))

    def test_snapshots_are_available_or_stay(self):
        db_rows.add_snapshot(self.volume, "creating")
        with self.assertRaises(exception.InvalidSnapshot):
            self.offer()
        self.offer(no_snapshots=True)


class AcceptTest(Case):
    def test_volume_and_own_snapshots_change_project(self):
        own = db_rows.add_snapshot(self.volume)["id"]
        foreign = db_rows.add_snapshot(self.volume, "error", project_id="third")["id"]
        transfer_store.accept(self.offer().row, OTHER)
        volume = db_rows.get_volume(self.volume)
        expected = ("other", "eve", "available", None)
        fields = ("project_id", "user_id", "status", "error")
        self.assertEqual(expected, tuple(volume[name] for name in fields))
        self.assertEqual("other", db_rows.get_snapshot(own)["project_id"])
        self.assertEqual("third", db_rows.get_snapshot(foreign)["project_id"])

    def test_quota_and_private_type_are_checked_unless_it_is_the_same_project(self):
        kind = type_store.create({"name": "gold", "is_public": False})["id"]
        db_rows.change_volume(self.volume, volume_type_id=kind)
        row = self.offer().row
        with self.assertRaises(exception.VolumeTypeNotFound):
            transfer_store.accept(row, OTHER)
        quotas.set_limits("other", {"gigabytes": 1})
        with self.assertRaises(exception.QuotaExceeded):
            transfer_store.accept(row, OTHER._replace(sees_all_types=True))
        self.assertEqual("awaiting-transfer", self.status())
        quotas.set_limits(db_rows.PROJECT, {"volumes": 0})
        transfer_store.accept(row, Acceptor(db_rows.PROJECT, "u", sees_all_types=False))
        self.assertEqual("available", self.status())

    def test_accept_and_delete_end_the_transfer(self):
        for end in (
            lambda row: transfer_store.accept(row, OTHER),
            transfer_store.delete,
            lambda row: volume_store.reset(row["volume_id"], "error", None),
        ):
            row = self.offer(db_rows.add_volume()["id"]).row
            end(row)
            for call in (transfer_store.delete, lambda row: transfer_store.accept(row, OTHER)):
                with self.assertRaises(exception.TransferNotFound):
                    call(row)
            with self.assertRaises(exception.TransferNotFound):
                transfer_store.get(row["id"], None)

    def test_removed_volume_has_no_transfer(self):
        row = self.offer().row
        db_rows.change_volume(self.volume, state="deleting")
        volume_store.transition(self.volume, Event.DELETED)
        with self.assertRaises(exception.TransferNotFound):
            transfer_store.accept(row, OTHER)


class PageTest(Case):
    def test_filters_select_transfers(self):
        one = self.offer(name="one").row
        other = db_rows.add_volume(project_id="b")["id"]
        two = transfer_store.create(other, "b", {"name": "two", "no_snapshots": True}).row
        for filters, expected in (
            ({}, [two, one]),
            ({"project_id": "b"}, [two]),
            ({"name": "one"}, [one]),
            ({"id": one["id"]}, [one]),
            ({"volume_id": other}, [two]),
            ({"no_snapshots": False}, [one]),
            ({"no_snapshots": True, "name": "one"}, []),
        ):
            with self.subTest(filters):
                self.assertEqual(expected, transfer_store.page(filters, paging.Page(10)))
        page = paging.Page(1, two["id"])
        self.assertEqual([one], transfer_store.page({}, page))
        with self.assertRaises(exception.MarkerNotFound):
            transfer_store.page({"project_id": "c"}, page)
