# SPDX-License-Identifier: Apache-2.0
"""Setting a volume's status by hand."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api.actions import handlers
from attachd.api.volumes import backend_calls
from attachd.tests import asking, rows


class ResetStatusTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def reset(self, volume, *roles, **claims):
        ctx = asking.context(*(roles or asking.ADMIN))
        handlers.reset_status(ctx, volume["id"], claims)
        return rows.volume(volume["id"])["status"]

    def test_reset_status_sets_status(self):
        volume = rows.add_volume("creating")
        for status in ("error", "available", "maintenance", "creating"):
            self.assertEqual(status, self.reset(volume, status=status.upper()))

    def test_reset_status_to_manager_state_is_refused(self):
        volume = rows.add_volume()
        for status in ("deleting", "error_deleting", "detaching", "extending", "nonsense"):
            with self.assertRaisesRegex(exception.InvalidInput, "os-reset_status.status"):
                self.reset(volume, status=status)
        self.assertEqual("available", rows.volume(volume["id"])["status"])

    def test_reset_status_contradicting_attachments_is_refused(self):
        volume = rows.add_volume()
        with self.assertRaisesRegex(exception.BadRequest, "in-use"):
            self.reset(volume, status="in-use")
        attachment = rows.add_attachment(volume["id"], "attached")
        for claims in ({"status": "available"}, {"attach_status": "detached"}):
            with self.assertRaisesRegex(exception.BadRequest, attachment["id"]):
                self.reset(volume, **claims)
        self.assertEqual("in-use", self.reset(volume, attach_status="attached"))

    def test_reset_migration_status_takes_only_none(self):
        self.assertEqual("available", self.reset(rows.add_volume(), migration_status="none"))
        with self.assertRaises(exception.InvalidInput):
            self.reset(rows.add_volume(), migration_status="migrating")

    def test_reset_status_without_field_is_refused(self):
        for claims in ({"status": None}, {"status": ""}, {"attach_status": None, "status": None}):
            with self.assertRaisesRegex(exception.BadRequest, "Must specify"):
                self.reset(rows.add_volume(), **claims)

    def test_reset_status_without_admin_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "reset_status"):
            self.reset(rows.add_volume(), *asking.MEMBER, status="error")


class ForceDeleteTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def test_force_delete_in_any_status_succeeds(self):
        for state in ("ready", "creating", "deleting", "maintenance", "error", "extending"):
            volume_id = rows.add_volume(state)["id"]
            handlers.force_delete(
                asking.context(*asking.ADMIN), volume_id, webob.Request.blank("/")
            )
            self.assertEqual("deleting", rows.volume(volume_id)["status"])
            self.assertEqual(volume_id, self.manager_api.delete_volume.call_args.args[1].id)

    def test_force_delete_of_attached_volume_is_refused(self):
        volume_id = rows.add_volume()["id"]
        rows.add_attachment(volume_id, "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, "is attached"):
            handlers.force_delete(
                asking.context(*asking.ADMIN), volume_id, webob.Request.blank("/")
            )
        self.assertEqual("in-use", rows.volume(volume_id)["status"])

    def test_force_delete_without_admin_is_forbidden(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "admin_actions:force_delete"):
            handlers.force_delete(asking.context(), volume_id, webob.Request.blank("/"))


class BootableTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_set_bootable_sets_and_clears_flag(self):
        volume_id = rows.add_volume()["id"]
        for said, expected in (("true", True), (False, False), ("on", True), ("0", False)):
            handlers.set_bootable(asking.context(), volume_id, {"bootable": said})
            self.assertIs(expected, rows.volume(volume_id)["bootable"])

    def test_set_bootable_in_maintenance_is_refused(self):
        volume_id = rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            handlers.set_bootable(asking.context(), volume_id, {"bootable": True})

    def test_set_bootable_for_reader_is_forbidden(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "volume:update"):
            handlers.set_bootable(asking.context("reader"), volume_id, {"bootable": True})


class ReadonlyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_update_readonly_flag_sets_and_clears_flag(self):
        volume_id = rows.add_volume()["id"]
        for said, expected in (("True", "True"), (False, "False"), (True, "True")):
            handlers.update_readonly_flag(asking.context(), volume_id, {"readonly": said})
            self.assertEqual({"readonly": expected}, rows.volume(volume_id)["admin_metadata"])

    def test_update_readonly_flag_for_reader_is_forbidden(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "update_readonly_flag"):
            handlers.update_readonly_flag(asking.context("reader"), volume_id, {"readonly": True})

    def test_update_readonly_flag_of_other_project_is_not_found(self):
        volume_id = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]
        for act, body in (
            (handlers.update_readonly_flag, {"readonly": True}),
            (handlers.set_bootable, {"bootable": True}),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act(asking.context(), volume_id, body)


class ImageMetadataTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.ctx = asking.context()
        self.volume_id = rows.add_volume()["id"]

    def merge(self, volume_id, *roles, **pairs):
        return handlers.set_image_metadata(asking.context(*roles), volume_id, {"metadata": pairs})

    def test_image_metadata_is_set_shown_and_removed(self):
        self.merge(self.volume_id, os_type="linux")
        self.assertEqual(
            {"metadata": {"os_type": "linux", "min_disk": "1"}},
            self.merge(self.volume_id, min_disk="1"),
        )
        handlers.unset_image_metadata(self.ctx, self.volume_id, {"key": "os_type"})
        shown = handlers.show_image_metadata(asking.context("reader"), self.volume_id)
        self.assertEqual({"metadata": {"min_disk": "1"}}, shown)
        with self.assertRaisesRegex(exception.NotFound, "os_type"):
            handlers.unset_image_metadata(self.ctx, self.volume_id, {"key": "os_type"})

    def test_show_image_metadata_without_any_is_not_found(self):
        with self.assertRaisesRegex(exception.NotFound, self.volume_id):
            handlers.show_image_metadata(self.ctx, self.volume_id)

    def test_image_metadata_for_reader_is_read_only(self):
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:set"):
            self.merge(self.volume_id, "reader", a="b")
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:remove"):
            handlers.unset_image_metadata(asking.context("reader"), self.volume_id, {"key": "a"})

    def test_set_image_metadata_in_maintenance_is_refused(self):
        volume_id = rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            self.merge(volume_id, a="b")
        with self.assertRaises(exception.InvalidVolume):
            handlers.unset_image_metadata(self.ctx, volume_id, {"key": "a"})

    def test_image_metadata_of_other_project_is_not_found(self):
        volume_id = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]
        for act in (
            lambda: self.merge(volume_id, a="b"),
            lambda: handlers.unset_image_metadata(self.ctx, volume_id, {"key": "a"}),
            lambda: handlers.show_image_metadata(self.ctx, volume_id),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act()
