# SPDX-License-Identifier: Apache-2.0
"""What a project may have and has."""

import unittest

from attachd import exception
from attachd.conf import CONF, quota
from attachd.db import quotas, types
from attachd.db.quotas import Used
from attachd.tests import databases, rows

NONE = {"volumes": Used(0), "gigabytes": Used(0)}


class Case(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)


class LimitsTest(Case):
    def test_what_is_set_for_a_project_comes_before_what_is_set_for_all(self):
        quotas.store_of_class("default", {"volumes": 3, "gigabytes": 4})
        quotas.store_of_class("gold", {"volumes": 99})
        quotas.store("p", {"volumes": 5, "backups": -1})
        quotas.store("other", {"gigabytes": 6})
        self.assertEqual({"volumes": 5, "gigabytes": 4, "backups": -1}, quotas.of_project("p"))
        self.assertEqual({"volumes": 99}, quotas.of_class("gold"))
        self.assertEqual({}, quotas.of_class("silver"))

    def test_what_is_set_again_replaces_only_itself(self):
        for store, read in (
            (quotas.store, quotas.of_project),
            (quotas.store_if_kept, quotas.of_project),
            (quotas.store_of_class, quotas.of_class),
        ):
            with self.subTest(store.__name__):
                store("x", {"volumes": 1, "gigabytes": 2})
                store("x", {"gigabytes": 3})
                store("x", {})
                self.assertEqual({"volumes": 1, "gigabytes": 3}, read("x"))

    def test_what_is_removed_is_that_of_one_project(self):
        quotas.store("p", {"volumes": 1})
        quotas.store("other", {"volumes": 2})
        quotas.remove("p")
        quotas.remove("p")
        self.assertEqual({}, quotas.of_project("p"))
        self.assertEqual({"volumes": 2}, quotas.of_project("other"))

    def test_a_deployment_that_sets_nothing_has_limits(self):
        defaults = {each.name: each.default for each in quota.OPTIONS}
        self.assertEqual(
            {"quota_volumes": 10, "quota_gigabytes": 1000, "per_volume_size_limit": -1}, defaults
        )

    def test_where_nothing_is_set_the_configuration_counts(self):
        CONF.set_override("quota_volumes", 7, group="quota")
        found = quotas.configured()
        self.assertEqual(
            (7, -1, -1), (found["volumes"], found["gigabytes"], found["per_volume_gigabytes"])
        )
        self.assertEqual(10, found["snapshots"])


class UsedTest(Case):
    def test_each_volume_counts_whatever_became_of_it(self):
        for state in ("creating", "ready", "error", "deleting", "error_deleting"):
            rows.add_volume(state, size_gib=2)
        rows.add_volume(project_id="other", size_gib=100)
        self.assertEqual({"volumes": Used(5), "gigabytes": Used(10)}, quotas.used(rows.PROJECT))
        self.assertEqual(NONE, quotas.used("nobody"))

    def test_what_a_volume_grows_by_is_coming(self):
        rows.add_volume("extending", size_gib=2, new_size_gib=5)
        rows.add_volume("error_extending", size_gib=2, new_size_gib=50)
        self.assertEqual(Used(4, 3), quotas.used(rows.PROJECT)["gigabytes"])
        self.assertEqual(7, quotas.used(rows.PROJECT)["gigabytes"].total)

    def test_the_volumes_of_a_type_are_counted_also_by_themselves(self):
        gold = types.create({"name": "gold"})["id"]
        rows.add_volume(size_gib=2, volume_type_id=gold)
        rows.add_volume("extending", size_gib=3, new_size_gib=4, volume_type_id=gold)
        rows.add_volume(size_gib=4)
        self.assertEqual(
            {
                "volumes": Used(3),
                "gigabytes": Used(9, 1),
                "volumes_gold": Used(2),
                "gigabytes_gold": Used(5, 1),
            },
            quotas.used(rows.PROJECT),
        )


class LoweringTest(Case):
    def test_no_limit_is_set_below_what_is_used(self):
        gold = types.create({"name": "gold"})["id"]
        rows.add_volume("extending", size_gib=2, new_size_gib=3, volume_type_id=gold)
        for name, limit in (("volumes", 0), ("gigabytes", 2), ("gigabytes_gold", 2)):
            with (
                self.subTest(name),
                self.assertRaisesRegex(
                    exception.BadRequest, f"quota for {name} cannot be {limit}: {limit + 1} are"
                ),
            ):
                quotas.store_if_kept(rows.PROJECT, {"backups": 1, name: limit})
        self.assertEqual({}, quotas.of_project(rows.PROJECT))
        kept = {"volumes": 1, "gigabytes": 3, "gigabytes_gold": -1, "per_volume_gigabytes": 1}
        quotas.store_if_kept(rows.PROJECT, kept)
        self.assertEqual(kept, quotas.of_project(rows.PROJECT))

    def test_whoever_insists_may(self):
        rows.add_volume()
        quotas.store(rows.PROJECT, {"volumes": 0})
        self.assertEqual({"volumes": 0}, quotas.of_project(rows.PROJECT))


class TypesTest(Case):
    SET = {"volumes_gold": 1, "gigabytes_gold": 2, "snapshots_gold": 3, "volumes_golden": 4}

    def setUp(self):
        super().setUp()
        self.gold = types.create({"name": "gold"})["id"]
        quotas.store("p", self.SET)
        quotas.store_of_class("c", self.SET)

    def test_limits_follow_a_type_that_is_renamed(self):
        types.update(self.gold, {"name": "silver"})
        types.update(self.gold, {"description": "Not gold"})
        expected = {
            "volumes_silver": 1,
            "gigabytes_silver": 2,
            "snapshots_silver": 3,
            "volumes_golden": 4,
        }
        self.assertEqual(expected, quotas.of_project("p"))
        self.assertEqual(expected, quotas.of_class("c"))

    def test_limits_stay_where_a_type_could_not_be_renamed(self):
        types.create({"name": "silver"})
        with self.assertRaises(exception.TypeExists):
            types.update(self.gold, {"name": "silver"})
        self.assertEqual(self.SET, quotas.of_project("p"))

    def test_limits_of_the_new_name_that_were_left_over_give_way(self):
        quotas.store("p", {"volumes_silver": 9})
        types.update(self.gold, {"name": "silver"})
        self.assertEqual(1, quotas.of_project("p")["volumes_silver"])

    def test_limits_go_with_a_type_that_is_deleted(self):
        types.delete(self.gold)
        self.assertEqual({"volumes_golden": 4}, quotas.of_project("p"))
        self.assertEqual({"volumes_golden": 4}, quotas.of_class("c"))

    def test_the_types_that_a_project_knows_are_named(self):
        types.create({"name": "black", "is_public": False})
        self.assertEqual(["black", "gold"], types.names({}))
        self.assertEqual(["gold"], types.names({"known_to": "p"}))
