# SPDX-License-Identifier: Apache-2.0
"""Objects that become snapshots: what is checked before a manager is called."""

from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.snapshots import backend_calls, manageable
from attachd.db.volumes import snapshot_store
from attachd.tests.fixtures import api_context, db_rows

GIB = 2**30
CAPABILITIES = {"snapshots": True, "manage_snapshots": True}


def item(name, **values):
    """Return an object as a manager lists it."""
    defaults = {"size_bytes": GIB, "refusal": "", "snapshot_id": "", "volume_id": ""}
    return {"reference": {"source-name": name}, **defaults, **values}


class ManageTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.report(CAPABILITIES)
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.calls = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.listing = self.enterContext(mock.patch.object(manageable, "manager_api"))
        self.volume = db_rows.add_volume(size_gib=2)["id"]

    def report(self, capabilities):
        report = {**api_context.BACKEND_REPORT, "capabilities": capabilities}
        api_context.report_backend(report=report)

    def manage(self, found, ref="disk"):
        self.listing.get_manageable_snapshot.return_value = found
        body = {"snapshot": {"volume_id": self.volume, "ref": ref, "name": " n "}}
        return manageable.manage(self.ctx, body, mv.LATEST)["snapshot"]

    def test_manage_stores_reference_and_size_and_sends(self):
        for ref in ("disk", {"source-name": "disk"}):
            shown = self.manage(item("disk", size_bytes=GIB + 1, volume_id=self.volume), ref)
            self.assertEqual(
                ("creating", 2, "n"), tuple(shown[k] for k in ("status", "size", "name"))
            )
            row = db_rows.get_snapshot(shown["id"])
            self.assertEqual({snapshot_store.TO_MANAGE: {"source-name": "disk"}}, row["provider"])
            self.listing.get_manageable_snapshot.assert_called_with(
                self.ctx, "here@fake", self.volume, {"source-name": "disk"}
            )
            self.calls.create_snapshot.assert_called_with(self.ctx, "here@fake", shown["id"])

    def test_object_that_does_not_fit_is_refused(self):
        for found, fault in (
            (item("disk", refusal="It is used."), "It is used"),
            (item("disk", volume_id="other"), "of volume other"),
            (item("disk", size_bytes=2 * GIB + 1), "3 GiB"),
            (item("disk", size_bytes=0), "0 GiB"),
        ):
            with self.assertRaisesRegex(exception.InvalidSnapshot, fault):
                self.manage(found)
        self.assertEqual([], db_rows.list_snapshots())

    def test_backend_without_ability_is_not_asked(self):
        self.report({"snapshots": True, "manage_snapshots": False})
        with self.assertRaisesRegex(exception.NoValidBackend, "manage_snapshots"):
            self.manage(item("disk"))
        self.listing.get_manageable_snapshot.assert_not_called()

    def test_volume_in_other_status_is_refused(self):
        db_rows.change_volume(self.volume, state="error", status="error")
        with self.assertRaisesRegex(exception.InvalidVolume, "error"):
            self.manage(item("disk"))


class ListTest(api_context.ApiContextCase):
    def test_wrong_parameter_of_a_page_is_refused_before_the_backend_is_asked(self):
        api_context.report_backend()
        ctx = api_context.make_context(*api_context.ADMIN)
        listing = self.enterContext(mock.patch.object(manageable, "manager_api"))
        for wrong in ({"sort": "colour"}, {"limit": "-1"}):
            with self.assertRaisesRegex(exception.BadRequest, "colour|limit"):
                manageable.index(ctx, {"host": "here@fake", **wrong}, mv.LATEST)
        listing.list_manageable_snapshots.assert_not_called()


class UnmanageTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        report = {**api_context.BACKEND_REPORT, "capabilities": CAPABILITIES}
        api_context.report_backend(report=report)
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.calls = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.volume = db_rows.add_volume()["id"]

    def test_unmanage_marks_and_sends(self):
        for state in ("available", "error"):
            snapshot = db_rows.add_snapshot(self.volume, state)["id"]
            manageable.unmanage(self.ctx, snapshot)
            row = db_rows.get_snapshot(snapshot)
            self.assertEqual(("unmanaging", "here@fake"), (row["state"], row["owner"]))
            self.calls.delete_snapshot.assert_called_with(self.ctx, "here@fake", snapshot)

    def test_unsent_message_leaves_an_error(self):
        snapshot = db_rows.add_snapshot(self.volume)["id"]
        self.calls.delete_snapshot.side_effect = exception.Unavailable(reason="gone")
        with self.assertRaises(exception.Unavailable):
            manageable.unmanage(self.ctx, snapshot)
        self.assertEqual("error", db_rows.get_snapshot(snapshot)["state"])

    def test_other_status_is_refused(self):
        for state in ("creating", "deleting", "unmanaging", "restoring"):
            snapshot = db_rows.add_snapshot(self.volume, state)["id"]
            with self.assertRaisesRegex(exception.InvalidSnapshot, state):
                manageable.unmanage(self.ctx, snapshot)
