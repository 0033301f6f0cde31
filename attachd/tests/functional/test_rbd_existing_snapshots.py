# SPDX-License-Identifier: Apache-2.0
"""Snapshots in the headers of images that become those of volumes, and what hosts do to them."""

from concurrent import futures
import dataclasses
import struct

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import copies
from attachd.tests.functional.rbd_case import GIB, new_id
from attachd.tests.functional.test_rbd_headers import change_header
from attachd.tests.functional.test_rbd_snapshots import AFTER, BEFORE, SnapshotCase
from attachd.tests.selection import full_only

NAME = "monday"


class ExistingCase(SnapshotCase):
    """A volume whose snapshots other clients make."""

    def image_of(self, volume):
        return f"attachd-{volume.id}" if self.prefix is None else f"{self.prefix}{volume.id}"

    def setUp(self):
        super().setUp()
        self.prefix = self.backend.options().get("rbd_prefix")

    def opened(self, pool, volume=None):
        return bindings.load().rbd.Image(pool, self.image_of(volume or self.source))

    def add(self, name=NAME, volume=None):
        """Make a snapshot as 'rbd snap create' does; return its id."""
        with self.cluster.pool() as pool, self.opened(pool, volume) as image:
            image.create_snap(name)
            return next(item["id"] for item in image.list_snaps() if item["name"] == name)

    def asked(self):
        return base.SnapshotRef(new_id(), self.source, 1)

    def manage(self, name=NAME):
        """Manage a snapshot, deleted with the test."""
        asked = self.asked()
        notes = self.driver.manage_snapshot(asked, {"source-name": name})
        made = dataclasses.replace(asked, provider=notes)
        self.addCleanup(self.driver.delete_snapshot, made)
        return made

    def record(self, made):
        """Return the name of the record of a snapshot."""
        return f"{self.image_of(self.source).removesuffix(self.source.id)}snap.{made.id}"

    def refusal(self, name=NAME):
        """Return the refusal of a snapshot, with which it is not managed either."""
        found = self.driver.get_manageable_snapshot(self.source, {"source-name": name}).refusal
        if found:
            with self.assertRaises(exception.BackendError) as raised:
                self.driver.manage_snapshot(self.asked(), {"source-name": name})
            self.assertTrue(raised.exception.final)
            self.assertIn(found, f"{raised.exception}")
            self.assertEqual({}, self.driver.list_snapshots())
        return found

    def content(self, snapshot):
        """Return the data of a snapshot."""
        asked = base.VolumeRef(new_id(), 1)
        notes = self.driver.create_from_snapshot(asked, snapshot)
        volume = base.VolumeRef(asked.id, 1, notes)
        self.addCleanup(self.driver.delete, volume)
        return self.read(volume)

    def orphan_objects(self):
        """Return the objects and records of snapshots in the pool."""
        with self.cluster.pool() as pool:
            names = [item.key for item in pool.list_objects()]
            names += [name for name, _record in copies.read_records(pool, "")]
        number = f"rbd_object_map.{self.source.provider['image']['id']}."
        return sorted(it for it in names if "snap." in it or it.startswith(number))


@full_only("storage")
class ManageTest(ExistingCase):
    def test_snapshot_of_another_client_becomes_one_of_the_volume(self):
        self.write(BEFORE)
        self.add()
        self.write(AFTER)
        (item,) = self.driver.list_manageable_snapshots()
        self.assertEqual(
            (f"{self.image_of(self.source)}@{NAME}", GIB, "", "", self.source.id),
            (item.reference["source-name"], *dataclasses.astuple(item)[1:]),
        )
        made = self.manage(item.reference["source-name"])
        self.assertEqual({made.id: self.source.id}, self.driver.list_snapshots())
        self.assertEqual(BEFORE, self.content(made))
        self.driver.revert(made)
        self.assertEqual(BEFORE, self.read(self.source))
        self.driver.delete_snapshot(made)
        self.assertEqual([], image_header.snapshots(self.header()))
        self.assertEqual([], self.orphan_objects())

    def test_names_like_paths_and_options_are_names(self):
        image = self.image_of(self.source)
        names = ("--config", "../../etc/passwd", "/etc/passwd", "a@b", f"{image}@x", "x", "-")
        numbers = {self.add(name): name for name in names}
        self.assertEqual(len(names), len(list(self.driver.list_manageable_snapshots())))
        for number, name in numbers.items():
            made = self.manage(f"{image}@{name}")
            self.assertEqual({"snapshot": number}, made.provider)
            self.assertEqual(
                "already managed",
                self.driver.get_manageable_snapshot(
                    self.source, {"source-name": f"{image}@{self.record(made)}"}
                ).refusal,
            )

    def test_snapshot_of_another_image_is_not_found(self):
        other = self.volume()
        self.add(volume=other)
        for name in (NAME, f"{self.image_of(other)}@{NAME}", self.image_of(self.source), "@"):
            with self.assertRaisesRegex(exception.InvalidInput, "that of the volume"):
                self.driver.get_manageable_snapshot(self.source, {"source-name": name})

    def test_protected_snapshot_and_one_with_clones_is_refused(self):
        lib, clone = bindings.load().rbd, f"clone-{new_id()}"
        self.add()
        with self.cluster.pool() as pool:
            with self.opened(pool) as image:
                image.protect_snap(NAME)
            self.assertIn("protected", self.refusal())
            with self.opened(pool) as image:
                image.unprotect_snap(NAME)
            self.assertEqual("", self.refusal())
            admin = self.cluster.admin()
            former = admin.conf_get("rbd_default_clone_format")
            self.addCleanup(admin.conf_set, "rbd_default_clone_format", former)
            admin.conf_set("rbd_default_clone_format", "2")
            lib.RBD().clone(pool, self.image_of(self.source), NAME, pool, clone)
            self.addCleanup(self.remove_clone, clone)
        # The header names the clones, too, so that the volume counts as changed by a host.
        self.assertIn(
            "1 clones",
            self.driver.get_manageable_snapshot(self.source, {"source-name": NAME}).refusal,
        )
        with self.assertRaises(exception.BackendError):
            self.driver.manage_snapshot(self.asked(), {"source-name": NAME})

    def remove_clone(self, clone):
        with self.cluster.pool() as pool:
            bindings.load().rbd.RBD().remove(pool, clone)

    def test_unmanaged_snapshot_stays_with_its_volume(self):
        self.write(BEFORE)
        taken = self.snapshot()
        self.driver.unmanage_snapshot(taken)
        self.driver.delete_snapshot(taken)  # A late message.
        self.write(AFTER)
        with self.cluster.pool() as pool:
            change_header(pool, self.source.provider["image"]["id"], {"attachd_test": b"x"})
        self.write(AFTER)  # The grant writes the header anew.
        self.snapshot()
        (item,) = [it for it in self.driver.list_manageable_snapshots() if not it.snapshot_id]
        self.assertEqual("", item.refusal)
        with self.assertRaisesRegex(exception.BackendError, "some may be unmanaged"):
            self.driver.delete(self.source)
        with self.assertRaisesRegex(exception.BackendError, "is missing"):
            self.content(taken)
        made = self.manage(item.reference["source-name"])
        self.assertEqual(BEFORE, self.content(made))

    def test_snapshot_that_is_managed_twice_at_once_is_managed_once_at_most(self):
        for round_ in range(4):
            name = f"{NAME}{round_}"
            self.add(name)
            tries = [self.asked() for _ in range(3)]
            with futures.ThreadPoolExecutor() as threads:
                calls = [
                    threads.submit(self.driver.manage_snapshot, it, {"source-name": name})
                    for it in tries
                ]
            failed = [call.exception() for call in calls if call.exception()]
            self.assertTrue(all(error.final for error in failed), failed)
            self.assertGreaterEqual(len(failed), 2)
            self.assertEqual(3 - len(failed), len(self.driver.list_snapshots()))
            for asked in tries:
                self.driver.unmanage_snapshot(asked)
            (left,) = self.driver.list_manageable_snapshots()
            self.assertEqual("", left.refusal)
            self.driver.delete_snapshot(self.manage(left.reference["source-name"]))
            self.assertEqual([], self.orphan_objects())


class ForgedTest(ExistingCase):
    """A host that writes its header with the key of its attachment."""

    def forge(self, number, name=NAME):
        export, info = self.granted(self.source)
        self.execute(info, "snapshot_add", object_names.encode(name) + struct.pack("<Q", number))
        return export

    def test_snapshot_of_another_image_or_of_none_is_refused(self):
        other = self.volume()
        taken = base.SnapshotRef(new_id(), other, 1)
        notes = self.driver.create_snapshot(taken)
        self.addCleanup(self.driver.delete_snapshot, taken)
        third = self.volume()
        for number, reason in (
            (notes["snapshot"], "is one of another image"),
            (self.add("foreign", third), "has the same snapshot"),
            (2**40, "has no snapshot"),
        ):
            export = self.forge(number)
            found = self.driver.get_manageable_snapshot(self.source, {"source-name": NAME})
            self.assertIn(reason, found.refusal)
            with self.assertRaises(exception.BackendError) as raised:
                self.driver.manage_snapshot(self.asked(), {"source-name": NAME})
            self.assertTrue(raised.exception.final)
            self.assertEqual([taken.id], list(self.driver.list_snapshots()))
            self.driver.revoke(self.source, export, [])
            with self.cluster.pool() as pool:
                header = object_names.header_name(self.source.provider["image"]["id"])
                pool.execute(header, "rbd", "snapshot_remove", struct.pack("<Q", number))
        copy = base.VolumeRef(new_id(), 1)
        self.driver.create_from_snapshot(copy, taken)
        self.driver.delete(copy)

    def test_damaged_entry_is_refused_and_hides_no_other(self):
        self.add()
        with self.cluster.pool() as pool:
            key = f"snapshot_{2**39:016x}"
            change_header(pool, self.source.provider["image"]["id"], {key: b"\xff" * 64})
        found = {
            it.reference["source-name"].partition("@")[2]: it.refusal
            for it in self.driver.list_manageable_snapshots()
        }
        self.assertEqual({NAME, f"{2**39}"}, set(found))
        self.assertIn("cannot be read", found[f"{2**39}"])

    def test_unmanaged_snapshot_that_a_host_removes_is_lost(self):
        taken = self.snapshot()
        self.driver.unmanage_snapshot(taken)
        export, info = self.granted(self.source)
        number = struct.pack("<Q", taken.provider["snapshot"])
        self.execute(info, "snapshot_remove", number)
        self.driver.revoke(self.source, export, [])
        (item,) = self.driver.list_manageable_snapshots()
        self.assertIn("It is lost", item.refusal)
        self.driver.delete(self.source)
        self.assertEqual([], self.orphan_objects())


@full_only("storage")
class KilledTest(ExistingCase):
    """A manager that is killed before each change; another one repeats the call, or undoes it."""

    def setUp(self):
        super().setUp()
        self.write(BEFORE)

    def assert_left(self, reference):
        """Check that there is one snapshot, none of a volume, with its data."""
        self.assertEqual({}, self.driver.list_snapshots())
        (item,) = self.driver.list_manageable_snapshots()
        self.assertEqual("", item.refusal)
        self.assertEqual(1, len(image_header.snapshots(self.header())))
        if item.reference != reference:
            return item.reference
        return None

    def finish(self, asked, reference, number):
        """Repeat or undo a call that was killed; both leave an unmanaged snapshot."""
        if number % 2:
            notes = self.driver.manage_snapshot(asked, reference)
            self.assertEqual([asked.id], list(self.driver.list_snapshots()))
            made = dataclasses.replace(asked, provider=notes)
            self.assertEqual(BEFORE, self.content(made))
        self.driver.unmanage_snapshot(asked)

    def test_killed_manage_of_foreign_snapshot_is_repeated_or_undone(self):
        self.add()
        self.write(AFTER)
        asked, reference = self.asked(), {"source-name": f"{self.image_of(self.source)}@{NAME}"}
        for number in self.each_death("manage_snapshot", asked, reference):
            self.finish(asked, reference, number)
            if self.assert_left(reference):
                with self.cluster.pool() as pool:
                    copies.drop(pool, self.record(asked))
                    with self.opened(pool) as image:
                        (entry,) = image.list_snaps()
                        if entry["name"] != NAME:
                            image.rename_snap(entry["name"], NAME)
            self.assertIsNone(self.assert_left(reference))
        self.driver.delete_snapshot(asked)
        self.assertEqual([], self.orphan_objects())

    def test_killed_manage_of_unmanaged_snapshot_is_repeated_or_undone(self):
        former, asked = self.snapshot(), self.asked()
        self.driver.unmanage_snapshot(former)
        self.write(AFTER)
        reference = {"source-name": f"{self.image_of(self.source)}@{self.record(former)}"}
        for number in self.each_death("manage_snapshot", asked, reference):
            self.finish(asked, reference, number)
            if other := self.assert_left(reference):
                self.driver.manage_snapshot(former, other)
                self.driver.unmanage_snapshot(former)
            self.assertIsNone(self.assert_left(reference))
        self.driver.delete_snapshot(asked)
        self.assertEqual([], self.orphan_objects())

    def test_killed_unmanage_is_repeated(self):
        taken = self.snapshot()
        reference = {"source-name": f"{self.image_of(self.source)}@{self.record(taken)}"}
        for _number in self.each_death("unmanage_snapshot", taken):
            self.driver.unmanage_snapshot(taken)
            self.assertIsNone(self.assert_left(reference))
            self.driver.manage_snapshot(taken, reference)
            self.assertEqual([taken.id], list(self.driver.list_snapshots()))
        self.driver.manage_snapshot(taken, reference)
        self.assertEqual(BEFORE, self.content(taken))
