# SPDX-License-Identifier: Apache-2.0
"""Tests of the actions of volumes."""

from unittest import mock

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import actions, backend_calls
from attachd.db.types import qos_specs
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows


class ResetStatusTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        db_rows.report_service("here@fake")
        self.compare_exports, self.compare_volume = (
            self.enterContext(mock.patch.object(actions.manager_api, name, return_value=[]))
            for name in ("compare_exports", "compare_volume")
        )

    def reset(self, volume, *roles, **claims):
        ctx = api_context.make_context(*(roles or api_context.ADMIN))
        actions.reset_status(ctx, volume["id"], claims, {})
        return db_rows.get_volume(volume["id"])["status"]

    def test_reset_status_to_one_of_hosts_asks_backend(self):
        volume = db_rows.add_volume("error")
        self.reset(volume, status="maintenance")
        self.compare_volume.assert_not_called()
        self.compare_volume.return_value = ["A has access.", "B is logged in."]
        with self.assertRaisesRegex(exception.Conflict, "available: .* A has access. B is logged"):
            self.reset(volume, status="available")
        self.compare_exports.side_effect = exception.ManagerTimeout("It did not answer.")
        with self.assertRaisesRegex(exception.Unavailable, "not reset.* It did not answer. "):
            self.reset(volume, attach_status="detached")
        self.assertEqual("maintenance", db_rows.get_volume(volume["id"])["status"])

    def test_reset_attach_status_does_not_need_the_data(self):
        self.compare_volume.return_value = ["Backend fake has no data of the volume."]
        volume = db_rows.add_volume("error")
        self.assertEqual("error", self.reset(volume, attach_status="detached"))
        for claims in ({"status": "available"}, {"status": "in-use"}):
            with self.assertRaisesRegex(exception.Conflict, "has no data of the volume"):
                self.reset(volume, **claims)
        self.assertEqual("error", self.reset(volume, status="error"))

    def test_volume_without_backend_stays_in_error(self):
        volume = db_rows.add_volume("error", host=None)
        with self.assertRaisesRegex(exception.InvalidVolume, "has no backend"):
            self.reset(volume, status="available")
        self.assertEqual("error", self.reset(volume, status="error"))
        self.compare_exports.assert_not_called()

    def test_reset_status_sets_status(self):
        volume = db_rows.add_volume("creating")
        for status in ("error", "available", "maintenance", "creating"):
            self.assertEqual(status, self.reset(volume, status=status.upper()))

    def test_reset_status_to_manager_state_is_refused(self):
        volume = db_rows.add_volume()
        for status in ("deleting", "error_deleting", "detaching", "extending", "nonsense"):
            with self.assertRaisesRegex(exception.InvalidInput, "os-reset_status.status"):
                self.reset(volume, status=status)
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])

    def test_reset_status_contradicting_attachments_is_refused(self):
        volume = db_rows.add_volume()
        with self.assertRaisesRegex(exception.BadRequest, "in-use"):
            self.reset(volume, status="in-use")
        attachment = db_rows.add_attachment(volume["id"], "attached")
        for claims in ({"status": "available"}, {"attach_status": "detached"}):
            with self.assertRaisesRegex(exception.BadRequest, attachment["id"]):
                self.reset(volume, **claims)
        self.assertEqual("in-use", self.reset(volume, attach_status="attached"))

    def test_reset_migration_status_takes_only_none(self):
        self.assertEqual("available", self.reset(db_rows.add_volume(), migration_status="none"))
        with self.assertRaises(exception.InvalidInput):
            self.reset(db_rows.add_volume(), migration_status="migrating")

    def test_reset_status_without_field_is_refused(self):
        for claims in ({"status": None}, {"status": ""}, {"attach_status": None, "status": None}):
            with self.assertRaisesRegex(exception.BadRequest, "Must specify"):
                self.reset(db_rows.add_volume(), **claims)

    def test_reset_status_without_admin_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "reset_status"):
            self.reset(db_rows.add_volume(), *api_context.MEMBER, status="error")


class ForceDeleteTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def test_force_delete_in_any_status_succeeds(self):
        for state in ("ready", "creating", "deleting", "maintenance", "error", "extending"):
            volume_id = db_rows.add_volume(state)["id"]
            actions.force_delete(
                api_context.make_context(*api_context.ADMIN), volume_id, webob.Request.blank("/")
            )
            self.assertEqual("deleting", db_rows.get_volume(volume_id)["status"])
            self.assertEqual(volume_id, self.manager_api.delete_volume.call_args.args[1].id)

    def test_force_delete_of_attached_volume_is_refused(self):
        volume_id = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume_id, "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, "is attached"):
            actions.force_delete(
                api_context.make_context(*api_context.ADMIN), volume_id, webob.Request.blank("/")
            )
        self.assertEqual("in-use", db_rows.get_volume(volume_id)["status"])

    def test_force_delete_without_admin_is_forbidden(self):
        volume_id = db_rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "admin_actions:force_delete"):
            actions.force_delete(api_context.make_context(), volume_id, webob.Request.blank("/"))


class BootableTest(api_context.ApiContextCase):
    def test_set_bootable_sets_and_clears_flag(self):
        volume_id = db_rows.add_volume()["id"]
        for said, expected in (("true", True), (False, False), ("on", True), ("0", False)):
            actions.set_bootable(api_context.make_context(), volume_id, {"bootable": said})
            self.assertIs(expected, db_rows.get_volume(volume_id)["bootable"])

    def test_set_bootable_in_maintenance_is_refused(self):
        volume_id = db_rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            actions.set_bootable(api_context.make_context(), volume_id, {"bootable": True})

    def test_set_bootable_for_reader_is_forbidden(self):
        volume_id = db_rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "volume:update"):
            actions.set_bootable(api_context.make_context("reader"), volume_id, {"bootable": True})


class ReadonlyTest(api_context.ApiContextCase):
    def test_update_readonly_flag_sets_and_clears_flag(self):
        volume_id = db_rows.add_volume()["id"]
        for said, expected in (("True", "True"), (False, "False"), (True, "True")):
            actions.update_readonly_flag(api_context.make_context(), volume_id, {"readonly": said})
            self.assertEqual(
                {"readonly": expected}, db_rows.get_volume(volume_id)["admin_metadata"]
            )

    def test_update_readonly_flag_for_reader_is_forbidden(self):
        volume_id = db_rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "update_readonly_flag"):
            actions.update_readonly_flag(
                api_context.make_context("reader"), volume_id, {"readonly": True}
            )

    def test_update_readonly_flag_of_other_project_is_not_found(self):
        volume_id = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]
        for act, body in (
            (actions.update_readonly_flag, {"readonly": True}),
            (actions.set_bootable, {"bootable": True}),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act(api_context.make_context(), volume_id, body)


class ImageMetadataTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.volume_id = db_rows.add_volume()["id"]

    def merge(self, volume_id, *roles, **pairs):
        return actions.set_image_metadata(
            api_context.make_context(*roles), volume_id, {"metadata": pairs}
        )

    def test_image_metadata_is_set_shown_and_removed(self):
        self.merge(self.volume_id, os_type="linux")
        self.assertEqual(
            {"metadata": {"os_type": "linux", "min_disk": "1"}},
            self.merge(self.volume_id, min_disk="1"),
        )
        actions.unset_image_metadata(self.ctx, self.volume_id, {"key": "os_type"})
        shown = actions.show_image_metadata(api_context.make_context("reader"), self.volume_id)
        self.assertEqual({"metadata": {"min_disk": "1"}}, shown)
        with self.assertRaisesRegex(exception.NotFound, "os_type"):
            actions.unset_image_metadata(self.ctx, self.volume_id, {"key": "os_type"})

    def test_show_image_metadata_without_any_is_not_found(self):
        with self.assertRaisesRegex(exception.NotFound, self.volume_id):
            actions.show_image_metadata(self.ctx, self.volume_id)

    def test_image_metadata_for_reader_is_read_only(self):
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:set"):
            self.merge(self.volume_id, "reader", a="b")
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:remove"):
            actions.unset_image_metadata(
                api_context.make_context("reader"), self.volume_id, {"key": "a"}
            )

    def test_set_image_metadata_in_maintenance_is_refused(self):
        volume_id = db_rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            self.merge(volume_id, a="b")
        with self.assertRaises(exception.InvalidVolume):
            actions.unset_image_metadata(self.ctx, volume_id, {"key": "a"})

    def test_image_metadata_of_other_project_is_not_found(self):
        volume_id = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]
        for act in (
            lambda: self.merge(volume_id, a="b"),
            lambda: actions.unset_image_metadata(self.ctx, volume_id, {"key": "a"}),
            lambda: actions.show_image_metadata(self.ctx, volume_id),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act()


class ExtendTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def extend(self, volume, size, *roles, version=mv.LATEST):
        actions.extend(api_context.make_context(*roles), volume["id"], {"new_size": size}, version)
        return db_rows.get_volume(volume["id"])

    def attached(self):
        volume = db_rows.add_volume()
        db_rows.add_attachment(volume["id"], "attached")
        return volume

    def test_extend_available_volume_marks_and_sends(self):
        row = self.extend(db_rows.add_volume(), "2")
        self.assertEqual(("extending", 2), (row["status"], row["new_size_gib"]))
        self.manager_api.extend_volume.assert_called_once()

    def test_extend_in_use_volume_since_3_42(self):
        volume = self.attached()
        with self.assertRaisesRegex(exception.InvalidVolume, "must be available to extend"):
            self.extend(volume, 2, version=mv.Version(3, 41))
        self.assertEqual("extending", self.extend(volume, 2, version=mv.Version(3, 42))["status"])

    def test_extend_to_smaller_size_is_refused(self):
        for size in (2, 1):
            with self.assertRaisesRegex(exception.InvalidInput, "greater than current"):
                self.extend(db_rows.add_volume(size_gib=2), size)

    def test_extend_in_wrong_status_names_status(self):
        reserved = db_rows.add_volume()
        db_rows.add_attachment(reserved["id"])
        for volume in (reserved, *map(db_rows.add_volume, ("error", "creating", "extending"))):
            status = db_rows.get_volume(volume["id"])["status"]
            with self.subTest(status), self.assertRaisesRegex(exception.InvalidVolume, status):
                self.extend(volume, 2)
        self.manager_api.extend_volume.assert_not_called()

    def test_extend_without_free_capacity_is_refused(self):
        volume = db_rows.add_volume()
        with self.assertRaisesRegex(exception.NoValidBackend, "GiB are asked for"):
            self.extend(volume, 200)
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])

    def test_extend_for_reader_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "volume:extend"):
            self.extend(db_rows.add_volume(), 2, "reader")

    def test_extend_beyond_limits_of_type_is_refused(self):
        volume_type = api_context.add_type(extra_specs={"provisioning:max_vol_size": "3"})
        volume = db_rows.add_volume(volume_type_id=volume_type["id"])
        with self.assertRaisesRegex(exception.InvalidInput, "at most 3 GiB"):
            self.extend(volume, 4)
        self.assertEqual("extending", self.extend(volume, 3)["status"])


class CompletionTest(api_context.ApiContextCase):
    def refused(self, state):
        volume_id = db_rows.add_volume(state, new_size_gib=5)["id"]
        before = db_rows.get_volume(volume_id)
        with self.assertRaises(exception.InvalidVolume) as caught:
            actions.complete_extend(api_context.make_context(*api_context.ADMIN), volume_id)
        self.assertEqual(before, db_rows.get_volume(volume_id))
        return str(caught.exception)

    def test_complete_extend_of_volume_not_extending_names_status(self):
        self.assertIn("not being extended, its status is available", self.refused("ready"))
        self.assertIn("error_extending", self.refused("error_extending"))

    def test_complete_extend_of_extending_volume_is_refused(self):
        self.assertIn("needs no confirmation", self.refused("extending"))

    def test_complete_extend_without_admin_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "extend_volume_completion"):
            actions.complete_extend(
                api_context.make_context(), db_rows.add_volume("extending")["id"]
            )


SEVERAL = {"multiattach": "<is> True"}


class RetypeTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.plain = api_context.add_type("plain")
        self.volume = db_rows.add_volume(volume_type_id=self.plain["id"], availability_zone="nova")

    def retype(self, to, *roles, volume=None, **policy):
        volume = volume or self.volume
        actions.retype(api_context.make_context(*roles), volume["id"], {"new_type": to, **policy})
        return db_rows.get_volume(volume["id"])

    def refused(self, error, says, to, *roles, volume=None, **policy):
        volume = volume or self.volume
        with self.assertRaisesRegex(error, says):
            self.retype(to, *roles, volume=volume, **policy)
        self.assertEqual(
            volume["volume_type_id"], db_rows.get_volume(volume["id"])["volume_type_id"]
        )

    def attached(self):
        volume = db_rows.add_volume(volume_type_id=self.plain["id"])
        db_rows.add_attachment(volume["id"], "attached")
        return volume

    def test_retype_by_name_or_id_ignores_migration_policy(self):
        gold = api_context.add_type("gold")
        for to, policy, expected in (
            ("gold", {}, gold["id"]),
            (self.plain["id"], {"migration_policy": "never"}, self.plain["id"]),
            (gold["id"], {"migration_policy": "on-demand"}, gold["id"]),
            ("plain", {"migration_policy": None}, self.plain["id"]),
        ):
            row = self.retype(to, **policy)
            self.assertEqual((expected, "available"), (row["volume_type_id"], row["status"]))

    def test_retype_in_use_to_equivalent_type_succeeds(self):
        gold = api_context.add_type("gold")
        self.assertEqual(gold["id"], self.retype("gold", volume=self.attached())["volume_type_id"])

    def test_retype_available_changes_multiattach(self):
        api_context.add_type("shared", extra_specs=SEVERAL)
        self.assertIs(True, self.retype("shared")["multiattach"])
        self.assertIs(False, self.retype("plain")["multiattach"])

    def test_retype_in_use_changing_multiattach_is_refused(self):
        api_context.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.InvalidInput, "how often", "shared", volume=self.attached())

    def test_retype_to_multiattach_without_permission_is_forbidden(self):
        api_context.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.Forbidden, "volume:retype", "shared", "reader")

    def test_retype_to_same_type_is_refused(self):
        self.refused(exception.InvalidVolume, "that type already", "plain")

    def test_retype_to_unknown_or_private_type_is_not_found(self):
        api_context.add_type("private", is_public=False)
        for to in ("nothing", api_context.new_id(), "private"):
            self.refused(exception.VolumeTypeNotFound, to, to)

    def test_retype_in_wrong_status_names_status(self):
        api_context.add_type("gold")
        for state in ("creating", "error", "extending", "maintenance"):
            volume = db_rows.add_volume(state, volume_type_id=self.plain["id"])
            self.refused(exception.InvalidVolume, f"currently {state}", "gold", volume=volume)

    def test_retype_of_other_project_is_not_found(self):
        strange = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)
        with self.assertRaises(exception.VolumeNotFound):
            self.retype("plain", volume=strange)


ANY = ("available", "in-use")


class CheckRetypeTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.plain = api_context.add_type("plain")["id"]

    def check(self, volume_type, status="available", **values):
        values = {"volume_type_id": self.plain, "availability_zone": "nova", **values}
        volume = db_rows.add_volume(status=status, **values)
        return actions.check_retype(
            Volume.get(api_context.make_context(), volume["id"]), volume_type
        )

    def refused(self, says, volume_type, status="available", **values):
        with self.assertRaisesRegex(exception.BadRequest, says):
            self.check(volume_type, status, **values)

    def limited(self, consumer):
        specs = qos_specs.create(consumer, consumer, {"total_iops_sec": "1"})
        return api_context.add_type(f"limited-{consumer}", qos_specs_id=specs["id"])

    def test_check_retype_to_equivalent_type_allows_in_use(self):
        gold = api_context.add_type("gold")
        for status in ANY:
            self.assertEqual((False, ANY), self.check(gold, status))

    def test_check_retype_to_multiattach_allows_available_only(self):
        shared = api_context.add_type("shared", extra_specs={"multiattach": "<is> True"})
        self.assertEqual((True, ("available",)), self.check(shared))
        self.refused("how often and by whom .* in-use", shared, "in-use")

    def test_check_retype_in_use_between_multiattach_types_succeeds(self):
        own, other = (
            api_context.add_type(name, extra_specs={"multiattach": "<is> True", "mode": "RO"})
            for name in ("mine", "other")
        )
        of_own_type = {"multiattach": True, "volume_type_id": own["id"]}
        self.assertEqual((True, ANY), self.check(other, "in-use", **of_own_type))
        for key, value in (("mode", "RW"), ("max_attachments", "3"),
                           ("max_attachments_per_host", "1")):  # fmt: skip
            specs = {"multiattach": "<is> True", "mode": "RO", key: value}
            volume_type = api_context.add_type(f"with {key}", extra_specs=specs)
            self.refused("how often and by whom .* in-use", volume_type, "in-use", **of_own_type)
            self.assertEqual((True, ("available",)), self.check(volume_type, **of_own_type))

    def test_check_retype_changing_front_end_qos_allows_available_only(self):
        for consumer in ("front-end", "both"):
            volume_type = self.limited(consumer)
            self.assertEqual((False, ("available",)), self.check(volume_type))
            self.refused("hosts limit it to", volume_type, "in-use")

    def test_check_retype_changing_back_end_qos_allows_in_use(self):
        self.assertEqual((False, ANY), self.check(self.limited("back-end"), "in-use"))

    def test_check_retype_with_missing_capability_names_it(self):
        gold = api_context.add_type("gold", extra_specs={"colour": "gold"})
        self.refused("does not migrate.*asks for: colour", gold)

    def test_check_retype_to_other_zone_is_refused(self):
        far = api_context.add_type("far", extra_specs={"RESKEY:availability_zones": "far"})
        self.refused("does not migrate.*zone nova", far)

    def test_check_retype_with_unknown_backend_is_refused(self):
        self.refused("has not reported", api_context.add_type("gold"), host="gone@fake#p")

    def test_check_retype_with_size_outside_limits_is_refused(self):
        large = api_context.add_type("large", extra_specs={"provisioning:min_vol_size": "100"})
        self.refused("at least 100 GiB", large)
