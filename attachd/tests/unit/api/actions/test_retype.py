# SPDX-License-Identifier: Apache-2.0
"""Another type for a volume, where it is."""

import unittest

from attachd import exception
from attachd.api.actions import retype
from attachd.db.types import qos_specs
from attachd.objects import Volume
from attachd.tests import asking, rows

SEVERAL = {"multiattach": "<is> True"}


class RetypeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report()
        self.plain = asking.add_type("plain")
        self.volume = rows.add_volume(volume_type_id=self.plain["id"], availability_zone="nova")

    def retype(self, to, *roles, volume=None, **policy):
        volume = volume or self.volume
        retype.retype(asking.context(*roles), volume["id"], {"new_type": to, **policy})
        return rows.volume(volume["id"])

    def refused(self, error, says, to, *roles, volume=None, **policy):
        volume = volume or self.volume
        with self.assertRaisesRegex(error, says):
            self.retype(to, *roles, volume=volume, **policy)
        self.assertEqual(volume["volume_type_id"], rows.volume(volume["id"])["volume_type_id"])

    def attached(self):
        volume = rows.add_volume(volume_type_id=self.plain["id"])
        rows.add_attachment(volume["id"], "attached")
        return volume

    def test_retype_by_name_or_id_ignores_migration_policy(self):
        gold = asking.add_type("gold")
        for to, policy, expected in (
            ("gold", {}, gold["id"]),
            (self.plain["id"], {"migration_policy": "never"}, self.plain["id"]),
            (gold["id"], {"migration_policy": "on-demand"}, gold["id"]),
            ("plain", {"migration_policy": None}, self.plain["id"]),
        ):
            row = self.retype(to, **policy)
            self.assertEqual((expected, "available"), (row["volume_type_id"], row["status"]))

    def test_retype_in_use_to_equivalent_type_succeeds(self):
        gold = asking.add_type("gold")
        self.assertEqual(gold["id"], self.retype("gold", volume=self.attached())["volume_type_id"])

    def test_retype_available_changes_multiattach(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.assertIs(True, self.retype("shared")["multiattach"])
        self.assertIs(False, self.retype("plain")["multiattach"])

    def test_retype_in_use_changing_multiattach_is_refused(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.InvalidInput, "how often", "shared", volume=self.attached())

    def test_retype_to_multiattach_without_permission_is_forbidden(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.Forbidden, "volume:retype", "shared", "reader")

    def test_retype_to_same_type_is_refused(self):
        self.refused(exception.InvalidVolume, "that type already", "plain")

    def test_retype_to_unknown_or_private_type_is_not_found(self):
        asking.add_type("private", is_public=False)
        for to in ("nothing", asking.new_id(), "private"):
            self.refused(exception.VolumeTypeNotFound, to, to)

    def test_retype_in_wrong_status_names_status(self):
        asking.add_type("gold")
        for state in ("creating", "error", "extending", "maintenance"):
            volume = rows.add_volume(state, volume_type_id=self.plain["id"])
            self.refused(exception.InvalidVolume, f"currently {state}", "gold", volume=volume)

    def test_retype_of_other_project_is_not_found(self):
        strange = rows.add_volume(project_id=asking.OTHER_PROJECT)
        with self.assertRaises(exception.VolumeNotFound):
            self.retype("plain", volume=strange)


ANY = ("available", "in-use")


class CheckRetypeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report()
        self.plain = asking.add_type("plain")["id"]

    def judge(self, kind, status="available", **values):
        values = {"volume_type_id": self.plain, "availability_zone": "nova", **values}
        volume = rows.add_volume(status=status, **values)
        return retype.check_retype(Volume.get(asking.context(), volume["id"]), kind)

    def refused(self, says, kind, status="available", **values):
        with self.assertRaisesRegex(exception.BadRequest, says):
            self.judge(kind, status, **values)

    def limited(self, consumer):
        specs = qos_specs.create(consumer, consumer, {"total_iops_sec": "1"})
        return asking.add_type(f"limited-{consumer}", qos_specs_id=specs["id"])

    def test_check_retype_to_equivalent_type_allows_in_use(self):
        gold = asking.add_type("gold")
        for status in ANY:
            self.assertEqual((False, ANY), self.judge(gold, status))

    def test_check_retype_to_multiattach_allows_available_only(self):
        shared = asking.add_type("shared", extra_specs={"multiattach": "<is> True"})
        self.assertEqual((True, ("available",)), self.judge(shared))
        self.refused("how often and by whom .* in-use", shared, "in-use")

    def test_check_retype_in_use_between_multiattach_types_succeeds(self):
        mine, other = (
            asking.add_type(name, extra_specs={"multiattach": "<is> True", "mode": "RO"})
            for name in ("mine", "other")
        )
        of_mine = {"multiattach": True, "volume_type_id": mine["id"]}
        self.assertEqual((True, ANY), self.judge(other, "in-use", **of_mine))
        for key, value in (("mode", "RW"), ("max_attachments", "3"),
                           ("max_attachments_per_host", "1")):  # fmt: skip
            specs = {"multiattach": "<is> True", "mode": "RO", key: value}
            kind = asking.add_type(f"with {key}", extra_specs=specs)
            self.refused("how often and by whom .* in-use", kind, "in-use", **of_mine)
            self.assertEqual((True, ("available",)), self.judge(kind, **of_mine))

    def test_check_retype_changing_front_end_qos_allows_available_only(self):
        for consumer in ("front-end", "both"):
            kind = self.limited(consumer)
            self.assertEqual((False, ("available",)), self.judge(kind))
            self.refused("hosts limit it to", kind, "in-use")

    def test_check_retype_changing_back_end_qos_allows_in_use(self):
        self.assertEqual((False, ANY), self.judge(self.limited("back-end"), "in-use"))

    def test_check_retype_with_missing_capability_names_it(self):
        gold = asking.add_type("gold", extra_specs={"colour": "gold"})
        self.refused("does not migrate.*asks for: colour", gold)

    def test_check_retype_to_other_zone_is_refused(self):
        far = asking.add_type("far", extra_specs={"RESKEY:availability_zones": "far"})
        self.refused("does not migrate.*zone nova", far)

    def test_check_retype_with_unknown_backend_is_refused(self):
        self.refused("has not reported", asking.add_type("gold"), host="gone@fake#p")

    def test_check_retype_with_size_outside_limits_is_refused(self):
        large = asking.add_type("large", extra_specs={"provisioning:min_vol_size": "100"})
        self.refused("at least 100 GiB", large)
