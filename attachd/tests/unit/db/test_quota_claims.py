# SPDX-License-Identifier: Apache-2.0
"""Whether a project may have more."""

import unittest

from attachd import exception
from attachd.conf import CONF
from attachd.db import api, quota_claims, quotas, types, volume_creation, volumes
from attachd.tests import databases, rows

PROJECT = rows.PROJECT
HOST = {"project_id": PROJECT, "host": "here@fake#pool"}


class Case(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.gold = types.create({"name": "gold"})["id"]

    def create(self, size=1, **values):
        return volume_creation.insert({**HOST, "size_gib": size, **values}, {})

    def assert_exceeded(self, says, function, *arguments, **values):
        before = rows.volumes()
        with self.assertRaisesRegex(exception.QuotaExceeded, says):
            function(*arguments, **values)
        self.assertEqual(before, rows.volumes())


class CreateTest(Case):
    def test_the_last_one_is_had_and_no_more(self):
        quotas.store(PROJECT, {"volumes": 2})
        self.create()
        self.create()
        self.assert_exceeded("for volumes: 1 more requested, 2 of 2 are used", self.create)
        self.create(project_id="other")

    def test_the_last_gib_is_had_and_no_more(self):
        quotas.store(PROJECT, {"gigabytes": 5})
        self.create(3)
        self.assert_exceeded("for gigabytes: 3 more requested, 3 of 5 are used", self.create, 3)
        self.create(2)

    def test_nothing_at_all(self):
        quotas.store(PROJECT, {"volumes": 0})
        self.assert_exceeded("for volumes: 1 more requested, 0 of 0", self.create)

    def test_a_volume_is_not_larger_than_its_project_may_have_volumes(self):
        quotas.store(PROJECT, {"per_volume_gigabytes": 4})
        self.assert_exceeded("5 GiB requested, and a volume may have at most 4", self.create, 5)
        self.create(4)

    def test_volumes_of_a_type_have_limits_of_their_own(self):
        quotas.store(PROJECT, {"volumes_gold": 2, "gigabytes_gold": 3, "volumes_silver": 0})
        self.create(volume_type_id=self.gold)
        gold = {"volume_type_id": self.gold}
        self.assert_exceeded(
            "for gigabytes_gold: 3 more requested, 1 of 3", self.create, 3, **gold
        )
        self.create(**gold)
        self.assert_exceeded("for volumes_gold: 1 more requested, 2 of 2", self.create, **gold)
        self.create(100)

    def test_what_holds_for_all_is_the_class_and_else_the_configuration(self):
        CONF.set_override("quota_volumes", 1, group="quota")
        self.create()
        self.assert_exceeded("1 of 1 are used", self.create)
        quotas.store_of_class("default", {"volumes": 2})
        self.create()
        self.assert_exceeded("2 of 2 are used", self.create)
        quotas.store(PROJECT, {"volumes": -1})
        self.create()

    def test_what_is_deleted_can_be_had_again(self):
        quotas.store(PROJECT, {"volumes": 1})
        volume = self.create(state="ready")
        volumes.move(volume["id"], volumes.Event.DELETE)
        self.assert_exceeded("1 of 1 are used", self.create)
        volumes.move(volume["id"], volumes.Event.DELETED)
        self.create()

    def test_a_project_that_has_more_than_it_may_gets_nothing(self):
        for _ in range(3):
            self.create()
        quotas.store(PROJECT, {"volumes": 1})
        self.assert_exceeded("1 more requested, 3 of 1 are used", self.create)


class ExtendTest(Case):
    def extend(self, volume, size):
        return volumes.extend(volume["id"], PROJECT, size)

    def test_a_volume_grows_by_what_is_left(self):
        quotas.store(PROJECT, {"gigabytes": 5, "volumes": 0})
        volume = rows.add_volume(size_gib=2)
        self.assert_exceeded("for gigabytes: 4 more requested, 2 of 5", self.extend, volume, 6)
        self.assertEqual("extending", self.extend(volume, 5)["state"])
        other = rows.add_volume(project_id=PROJECT, size_gib=1)
        self.assert_exceeded("for gigabytes: 1 more requested, 6 of 5", self.extend, other, 2)

    def test_a_volume_that_failed_to_grow_counts_as_it_was(self):
        quotas.store(PROJECT, {"gigabytes": 5})
        volume = self.extend(rows.add_volume(), 5)
        volumes.move(volume["id"], volumes.Event.EXTEND_FAILED)
        self.create(4)

    def test_a_volume_of_a_type_grows_within_the_limits_of_the_type(self):
        quotas.store(PROJECT, {"gigabytes_gold": 2})
        volume = rows.add_volume(volume_type_id=self.gold)
        self.assert_exceeded("gigabytes_gold: 2 more requested, 1 of 2", self.extend, volume, 3)
        self.extend(volume, 2)

    def test_the_largest_volume_is_not_exceeded(self):
        quotas.store(PROJECT, {"per_volume_gigabytes": 2})
        self.assert_exceeded("3 GiB requested, .* at most 2", self.extend, rows.add_volume(), 3)

    def test_a_volume_that_is_in_no_state_for_it_is_told_so(self):
        with self.assertRaises(exception.InvalidTransition):
            self.extend(rows.add_volume("error"), 2)
        with self.assertRaises(exception.VolumeNotFound):
            self.extend({"id": "x"}, 2)


class RetypeTest(Case):
    def test_only_the_limits_of_the_new_type_count(self):
        quotas.store(PROJECT, {"volumes": 0, "gigabytes": 0, "per_volume_gigabytes": 1})
        claim = quota_claims.of_retype(self.gold, 5)
        quota_claims.check(PROJECT, claim)
        quotas.store(PROJECT, {"gigabytes_gold": 4})
        self.assert_exceeded("gigabytes_gold: 5 more", quota_claims.check, PROJECT, claim)
        quotas.store(PROJECT, {"gigabytes_gold": -1, "volumes_gold": 0})
        self.assert_exceeded("volumes_gold: 1 more", quota_claims.check, PROJECT, claim)


class CostTest(Case):
    def _statements(self, function):
        before = api.counters().statements
        function()
        return api.counters().statements - before

    def test_what_is_not_limited_is_not_counted(self):
        self.assertEqual(2, self._statements(self.create))
        quotas.store(PROJECT, {"volumes": 100, "volumes_gold": 100})
        gold = {"volume_type_id": self.gold}
        # One more looks whether the type is what it was.
        self.assertEqual(4, self._statements(lambda: self.create(**gold)))
