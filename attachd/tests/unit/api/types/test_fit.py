# SPDX-License-Identifier: Apache-2.0
"""Whether a volume can have another type where it is, and when."""

import unittest

from attachd import exception
from attachd.api.types import fit
from attachd.db import qos_specs
from attachd.objects import Volume
from attachd.tests import asking, rows

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
        return fit.judge(Volume.get(asking.context(), volume["id"]), kind)

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
