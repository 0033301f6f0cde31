# SPDX-License-Identifier: Apache-2.0
"""Tests of volumes as answers show them, by caller and microversion."""

import datetime

from attachd.api import microversions as mv
from attachd.api.volumes import view
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows

NOW = datetime.datetime.fromisoformat("2026-01-31T12:00:00")
BASE = {
    *("id", "status", "size", "availability_zone", "created_at", "updated_at", "name"),
    *("description", "volume_type", "snapshot_id", "source_volid", "metadata", "links"),
    *("user_id", "bootable", "encrypted", "replication_status", "consistencygroup_id"),
    *("multiattach", "attachments"),
}
TENANT = "os-vol-tenant-attr:tenant_id"
FOR_ADMINS = {
    *("os-vol-host-attr:host", "os-vol-mig-status-attr:migstat", "migration_status"),
    "os-vol-mig-status-attr:name_id",
}


def volume(**values):
    row = dict.fromkeys(Volume.fields) | {
        "id": "v",
        "project_id": "p",
        "size_gib": 2,
        "state": "ready",
        "status": "in-use",
        "attach_status": "attached",
        "multiattach": False,
        "bootable": False,
        "host": "h@b#p",
        "metadata": {"k": "v"},
        "admin_metadata": {},
        "created_at": NOW,
        "volume_type_id": "t",
        "volume_type_name": "gold",
    }
    return Volume.from_row(None, {**row, **values})


def attachment(state="attached", **values):
    return {
        "id": "a",
        "volume_id": "v",
        "instance_uuid": "s",
        "state": state,
        "host": "compute",
        "mountpoint": "/dev/vdb",
        "attached_at": NOW,
        **values,
    }


class Case(api_context.ApiContextCase):
    def viewer(self, version=mv.LATEST, *roles, attachd_version=None):
        return view.Viewer.from_context(
            api_context.make_context(*roles, attachd_version=attachd_version),
            version,
            api_context.make_links(),
        )

    def detail(
        self, version=mv.LATEST, *roles, attachments=(), image=(), attachd_version=None, **values
    ):
        viewer = self.viewer(version, *roles, attachd_version=attachd_version)
        return view.detail(volume(**values), attachments, dict(image), viewer)


class KeysTest(Case):
    def test_detail_keys_of_each_microversion(self):
        added = {
            (3, 13): {"group_id"},
            (3, 48): {"shared_targets", "service_uuid"},
            (3, 63): {"volume_type_id"},
            (3, 65): {"consumes_quota"},
        }
        expected = BASE | {TENANT}
        for version in mv.versions():
            expected = expected | added.get(tuple(version), set())
            with self.subTest(str(version)):
                self.assertEqual(expected, set(self.detail(version)))

    def test_detail_keys_for_admin(self):
        added = {(3, 21): {"provider_id"}, (3, 61): {"cluster_name"}}
        expected = set(FOR_ADMINS)
        for version in mv.versions():
            expected = expected | added.get(tuple(version), set())
            with self.subTest(str(version)):
                shown = set(self.detail(version, *api_context.ADMIN))
                self.assertEqual(expected, shown - set(self.detail(version)))

    def test_progress_is_shown_of_copy_under_own_version(self):
        for state, progress, expected in (
            ("creating", {"progress": "7"}, 7),
            ("creating", {}, None),
            ("error", {"progress": "7"}, None),
        ):
            values = {"state": state, "admin_metadata": progress}
            self.assertNotIn("progress", self.detail(**values))
            shown = self.detail(attachd_version=mv.ATTACHD_LATEST, **values)
            self.assertEqual(expected, shown.get("progress"), state)
            self.assertNotIn("progress", shown["metadata"])

    def test_created_volume_lacks_extended_attributes(self):
        for roles in (api_context.MEMBER, api_context.ADMIN):
            shown = view.created(volume(), self.viewer(mv.LATEST, *roles))
            missing = set(self.detail(mv.LATEST, *roles)) - set(shown)
            self.assertLessEqual(missing, {TENANT, *FOR_ADMINS})
            self.assertIn(TENANT, missing)
            self.assertIs(True, shown["shared_targets"])
            self.assertIsNone(shown["service_uuid"])

    def test_created_volume_in_early_version_lacks_later_fields(self):
        shown = view.created(volume(), self.viewer(mv.Version(3, 47)))
        self.assertNotIn("shared_targets", shown)

    def test_summary_keys(self):
        self.assertEqual({"id", "name", "links"}, set(view.summary(volume(), self.viewer())))


class ValuesTest(Case):
    def test_bootable_is_string_and_multiattach_is_boolean(self):
        self.assertEqual("false", self.detail()["bootable"])
        self.assertEqual("true", self.detail(bootable=True)["bootable"])
        self.assertIs(False, self.detail()["multiattach"])
        self.assertIs(False, self.detail()["encrypted"])

    def test_type_is_shown_by_name_and_id(self):
        shown = self.detail()
        self.assertEqual(("gold", "t"), (shown["volume_type"], shown["volume_type_id"]))

    def test_service_uuid_depends_on_backend_and_not_pool(self):
        def named(host):
            return self.detail(host=host)["service_uuid"]

        self.assertEqual(named("h@b#p"), named("h@b#q"))
        self.assertNotEqual(named("h@b#p"), named("h@c#p"))
        self.assertIsNone(named(None))

    def test_shared_targets_before_tristate_shows_true_for_null(self):
        for shared, before in ((True, True), (False, False), (None, True)):
            for version, expected in (((3, 48), before), ((3, 68), before), ((3, 69), shared)):
                shown = self.detail(mv.Version(*version), shared_targets=shared)
                self.assertIs(expected, shown["shared_targets"], (shared, version))

    def test_source_volid_is_shown(self):
        self.assertEqual("other", self.detail(source_volid="other")["source_volid"])

    def test_visible_admin_metadata_is_shown_in_metadata(self):
        shown_metadata = {"readonly": "True", "attached_mode": "ro"}
        shown = self.detail(admin_metadata={**shown_metadata, "secret": "s"})["metadata"]
        self.assertEqual({"k": "v", **shown_metadata}, shown)

    def test_image_metadata_is_shown_if_present(self):
        self.assertNotIn("volume_image_metadata", self.detail())
        shown = self.detail(image={"os_type": "linux"})
        self.assertEqual({"os_type": "linux"}, shown["volume_image_metadata"])

    def test_image_metadata_without_permission_is_hidden(self):
        shown = self.detail(mv.LATEST, "stranger", image={"os_type": "linux"})
        self.assertNotIn("volume_image_metadata", shown)

    def test_links_point_to_volume(self):
        hrefs = [link["href"] for link in self.detail()["links"]]
        self.assertEqual(
            [
                f"http://api.example/v3/{db_rows.PROJECT}/volumes/v",
                f"http://api.example/{db_rows.PROJECT}/volumes/v",
            ],
            hrefs,
        )


class AttachmentsTest(Case):
    def test_attachments_lists_only_attached(self):
        others = ("reserved", "connecting", "connected", "disconnecting", "connect_unknown")
        shown = self.detail(attachments=[attachment(), *map(attachment, others)])
        (only,) = shown["attachments"]
        self.assertEqual(
            {
                "id": "v",
                "attachment_id": "a",
                "volume_id": "v",
                "server_id": "s",
                "host_name": None,
                "device": "/dev/vdb",
                "attached_at": NOW,
            },
            only,
        )

    def test_attachments_under_attachd_1_0_lists_all_and_counts_attached(self):
        states = ("reserved", "attached", "connect_failed", "disconnecting", "attached")
        held = [attachment(state, mode="ro", created_at=NOW) for state in states]
        shown = self.detail(attachments=held, attachd_version=mv.ATTACHD_1_0)
        self.assertEqual(2, shown["attachment_count"])
        self.assertEqual(
            ["reserved", "attached", "error_attaching", "detaching", "attached"],
            [item["status"] for item in shown["attachments"]],
        )
        expected = {"attach_mode": "ro", "attached_host": "compute", "created_at": NOW,
                    "attached_at": NOW, "host_name": None}  # fmt: skip
        first = shown["attachments"][0]
        self.assertEqual(expected, {key: first[key] for key in expected})

    def test_summary_under_attachd_1_0_counts_attached(self):
        viewer = self.viewer(attachd_version=mv.ATTACHD_1_0)
        shown = view.summary_with_count(volume(), 3, viewer)
        self.assertEqual({**view.summary(volume(), viewer), "attachment_count": 3}, shown)

    def test_host_name_is_shown_to_admins_and_services(self):
        for roles, expected in (
            (api_context.MEMBER, None),
            (api_context.ADMIN, "compute"),
            (("reader", "service"), "compute"),
        ):
            (shown,) = self.detail(mv.LATEST, *roles, attachments=[attachment()])["attachments"]
            self.assertEqual(expected, shown["host_name"], roles)

    def test_attachment_without_mountpoint_shows_na(self):
        for host, expected in (("compute", "na"), (None, None)):
            held = attachment(mountpoint=None, host=host)
            (shown,) = self.detail(attachments=[held])["attachments"]
            self.assertEqual(expected, shown["device"])
