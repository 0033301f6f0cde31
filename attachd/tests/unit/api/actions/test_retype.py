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

    def test_by_name_or_id_whatever_the_migration_policy(self):
        gold = asking.add_type("gold")
        for to, policy, expected in (
            ("gold", {}, gold["id"]),
            (self.plain["id"], {"migration_policy": "never"}, self.plain["id"]),
            (gold["id"], {"migration_policy": "on-demand"}, gold["id"]),
            ("plain", {"migration_policy": None}, self.plain["id"]),
        ):
            row = self.retype(to, **policy)
            self.assertEqual((expected, "available"), (row["volume_type_id"], row["status"]))

    def test_a_volume_in_use_gets_a_type_that_changes_nothing_for_its_hosts(self):
        gold = asking.add_type("gold")
        self.assertEqual(gold["id"], self.retype("gold", volume=self.attached())["volume_type_id"])

    def test_several_attachments_come_and_go_with_the_type_of_a_free_volume(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.assertIs(True, self.retype("shared")["multiattach"])
        self.assertIs(False, self.retype("plain")["multiattach"])

    def test_several_attachments_are_no_change_for_a_volume_in_use(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.InvalidInput, "how often", "shared", volume=self.attached())

    def test_several_attachments_have_a_rule_of_their_own(self):
        asking.add_type("shared", extra_specs=SEVERAL)
        self.refused(exception.Forbidden, "volume:retype", "shared", "reader")

    def test_the_same_type_is_refused(self):
        self.refused(exception.InvalidVolume, "that type already", "plain")

    def test_an_unknown_type_and_another_projects_are_not_found(self):
        asking.add_type("private", is_public=False)
        for to in ("nothing", asking.new_id(), "private"):
            self.refused(exception.VolumeTypeNotFound, to, to)

    def test_other_statuses_are_told(self):
        asking.add_type("gold")
        for state in ("creating", "error", "extending", "maintenance"):
            volume = rows.add_volume(state, volume_type_id=self.plain["id"])
            self.refused(exception.InvalidVolume, f"currently {state}", "gold", volume=volume)

    def test_another_projects_volume_is_not_there(self):
        strange = rows.add_volume(project_id=asking.OTHER_PROJECT)
        with self.assertRaises(exception.VolumeNotFound):
            self.retype("plain", volume=strange)


ANY = ("available", "in-use")


class FitTest(unittest.TestCase):
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

    def test_what_changes_nothing_for_hosts_may_happen_at_any_time(self):
        gold = asking.add_type("gold")
        for status in ANY:
            self.assertEqual((False, ANY), self.judge(gold, status))

    def test_several_attachments_come_with_a_type_of_a_free_volume(self):
        shared = asking.add_type("shared", extra_specs={"multiattach": "<is> True"})
        self.assertEqual((True, ("available",)), self.judge(shared))
        self.refused("how often and by whom .* in-use", shared, "in-use")

    def test_a_volume_in_use_may_have_another_type_that_is_attached_alike(self):
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

    def test_limits_at_the_host_change_only_for_a_free_volume(self):
        for consumer in ("front-end", "both"):
            kind = self.limited(consumer)
            self.assertEqual((False, ("available",)), self.judge(kind))
            self.refused("hosts limit it to", kind, "in-use")

    def test_limits_at_the_backend_may_change_at_any_time(self):
        self.assertEqual((False, ANY), self.judge(self.limited("back-end"), "in-use"))

    def test_what_the_backend_lacks_is_named(self):
        gold = asking.add_type("gold", extra_specs={"colour": "gold"})
        self.refused("does not migrate.*asks for: colour", gold)

    def test_another_zone_is_refused(self):
        far = asking.add_type("far", extra_specs={"RESKEY:availability_zones": "far"})
        self.refused("does not migrate.*zone nova", far)

    def test_a_backend_that_has_gone_is_told(self):
        self.refused("has not reported", asking.add_type("gold"), host="gone@fake#p")

    def test_a_size_that_the_type_does_not_have_is_refused(self):
        large = asking.add_type("large", extra_specs={"provisioning:min_vol_size": "100"})
        self.refused("at least 100 GiB", large)
