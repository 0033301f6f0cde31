# SPDX-License-Identifier: Apache-2.0
"""Limits, usage, and the enforcement of quotas."""

import functools

from attachd import exception
from attachd.conf import CONF, quota
from attachd.db import models, quotas
from attachd.db.attachments import attachment_store, legacy
from attachd.db.engine import session
from attachd.db.quotas import ResourceUsage
from attachd.db.types import type_store
from attachd.db.volumes import volume_store
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.fixtures.conf_fixture import override

NONE = {name: ResourceUsage(0) for name in ("volumes", "gigabytes", "snapshots", "attachments")}


class LimitsTest(databases.DatabaseCase):
    def test_project_limit_overrides_class_limit(self):
        quotas.set_class_limits("default", {"volumes": 3, "gigabytes": 4})
        quotas.set_class_limits("gold", {"volumes": 99})
        quotas.set_limits("p", {"volumes": 5, "backups": -1})
        quotas.set_limits("other", {"gigabytes": 6})
        self.assertEqual({"volumes": 5, "gigabytes": 4, "backups": -1}, quotas.project_limits("p"))
        self.assertEqual({"volumes": 99}, quotas.class_limits("gold"))
        self.assertEqual({}, quotas.class_limits("silver"))

    def test_set_limits_replaces_named_limits_only(self):
        for store, read in (
            (quotas.set_limits, quotas.project_limits),
            (quotas.set_limits_above_usage, quotas.project_limits),
            (quotas.set_class_limits, quotas.class_limits),
        ):
            with self.subTest(store.__name__):
                store("x", {"volumes": 1, "gigabytes": 2})
                store("x", {"gigabytes": 3})
                store("x", {})
                self.assertEqual({"volumes": 1, "gigabytes": 3}, read("x"))

    def test_delete_limits_affects_one_project(self):
        quotas.set_limits("p", {"volumes": 1})
        quotas.set_limits("other", {"volumes": 2})
        quotas.delete_limits("p")
        quotas.delete_limits("p")
        self.assertEqual({}, quotas.project_limits("p"))
        self.assertEqual({"volumes": 2}, quotas.project_limits("other"))

    def test_default_configuration_has_limits(self):
        defaults = {option.name: option.default for option in quota.OPTIONS}
        self.assertEqual(
            {
                "quota_volumes": 10,
                "quota_gigabytes": 1000,
                "per_volume_size_limit": -1,
                "quota_attachments": -1,
                "quota_snapshots": 10,
                "no_snapshot_gb_quota": False,
            },
            defaults,
        )

    def test_limits_default_to_configuration(self):
        CONF.set_override("quota_volumes", 7, group="quota")
        found = quotas.configured_limits()
        self.assertEqual(
            (7, -1, -1), (found["volumes"], found["gigabytes"], found["per_volume_gigabytes"])
        )
        self.assertEqual(10, found["snapshots"])


class UsageTest(databases.DatabaseCase):
    def test_usage_counts_volumes_in_every_state(self):
        for state in ("creating", "ready", "error", "deleting", "error_deleting"):
            db_rows.add_volume(state, size_gib=2)
        db_rows.add_volume(project_id="other", size_gib=100)
        self.assertEqual(
            {**NONE, "volumes": ResourceUsage(5), "gigabytes": ResourceUsage(10)},
            quotas.usage(db_rows.PROJECT),
        )
        self.assertEqual(NONE, quotas.usage("unknown"))

    def test_usage_counts_growth_as_reserved(self):
        db_rows.add_volume("extending", size_gib=2, new_size_gib=5)
        db_rows.add_volume("error_extending", size_gib=2, new_size_gib=50)
        self.assertEqual(ResourceUsage(4, 3), quotas.usage(db_rows.PROJECT)["gigabytes"])
        self.assertEqual(7, quotas.usage(db_rows.PROJECT)["gigabytes"].total)

    def test_usage_counts_volumes_of_type_separately(self):
        gold = type_store.create({"name": "gold"})["id"]
        db_rows.add_volume(size_gib=2, volume_type_id=gold)
        db_rows.add_volume("extending", size_gib=3, new_size_gib=4, volume_type_id=gold)
        db_rows.add_volume(size_gib=4)
        self.assertEqual(
            {
                **NONE,
                "volumes": ResourceUsage(3),
                "gigabytes": ResourceUsage(9, 1),
                "volumes_gold": ResourceUsage(2),
                "gigabytes_gold": ResourceUsage(5, 1),
            },
            quotas.usage(db_rows.PROJECT),
        )

    def test_usage_counts_snapshots_with_their_types_and_sizes(self):
        gold = type_store.create({"name": "gold"})["id"]
        volume = db_rows.add_volume(size_gib=4, volume_type_id=gold)["id"]
        db_rows.add_snapshot(volume, size_gib=3, volume_type_id=gold)
        db_rows.add_snapshot(volume, "error", size_gib=4, volume_type_id=gold)
        db_rows.add_snapshot(volume, size_gib=9, project_id="other")
        expected = {
            **NONE,
            "volumes": ResourceUsage(1),
            "gigabytes": ResourceUsage(11),
            "snapshots": ResourceUsage(2),
            "volumes_gold": ResourceUsage(1),
            "gigabytes_gold": ResourceUsage(11),
            "snapshots_gold": ResourceUsage(2),
        }
        self.assertEqual(expected, quotas.usage(db_rows.PROJECT))
        override(self, "no_snapshot_gb_quota", True, group="quota")
        sizes = {"gigabytes": ResourceUsage(4), "gigabytes_gold": ResourceUsage(4)}
        self.assertEqual({**expected, **sizes}, quotas.usage(db_rows.PROJECT))

    def test_usage_counts_attachments_in_every_state(self):
        volume = db_rows.add_volume()["id"]
        attached = db_rows.add_attachment(volume, "attached", kind="legacy")["id"]
        db_rows.add_attachment(volume, "connected", kind="connection", parent_id=attached)
        db_rows.add_attachment(volume, "connected", kind="connection")
        db_rows.add_attachment(volume, "held", kind="hold")
        db_rows.add_attachment(volume, "connect_failed")
        db_rows.add_attachment(volume, "reserved", project_id="other")
        self.assertEqual(ResourceUsage(4), quotas.usage(db_rows.PROJECT)["attachments"])


class LoweringTest(databases.DatabaseCase):
    def test_set_limits_below_usage_is_refused(self):
        gold = type_store.create({"name": "gold"})["id"]
        db_rows.add_volume("extending", size_gib=2, new_size_gib=3, volume_type_id=gold)
        for name, limit in (("volumes", 0), ("gigabytes", 2), ("gigabytes_gold", 2)):
            with (
                self.subTest(name),
                self.assertRaisesRegex(
                    exception.BadRequest, f"quota for {name} cannot be {limit}: {limit + 1} are"
                ),
            ):
                quotas.set_limits_above_usage(db_rows.PROJECT, {"backups": 1, name: limit})
        self.assertEqual({}, quotas.project_limits(db_rows.PROJECT))
        kept = {"volumes": 1, "gigabytes": 3, "gigabytes_gold": -1, "per_volume_gigabytes": 1}
        quotas.set_limits_above_usage(db_rows.PROJECT, kept)
        self.assertEqual(kept, quotas.project_limits(db_rows.PROJECT))

    def test_set_limits_by_force_succeeds(self):
        db_rows.add_volume()
        quotas.set_limits(db_rows.PROJECT, {"volumes": 0})
        self.assertEqual({"volumes": 0}, quotas.project_limits(db_rows.PROJECT))


class TypesTest(databases.DatabaseCase):
    SET = {"volumes_gold": 1, "gigabytes_gold": 2, "snapshots_gold": 3, "volumes_golden": 4}

    def setUp(self):
        super().setUp()
        self.gold = type_store.create({"name": "gold"})["id"]
        quotas.set_limits("p", self.SET)
        quotas.set_class_limits("c", self.SET)

    def test_rename_type_renames_limits(self):
        type_store.update(self.gold, {"name": "silver"})
        type_store.update(self.gold, {"description": "Not gold"})
        expected = {
            "volumes_silver": 1,
            "gigabytes_silver": 2,
            "snapshots_silver": 3,
            "volumes_golden": 4,
        }
        self.assertEqual(expected, quotas.project_limits("p"))
        self.assertEqual(expected, quotas.class_limits("c"))

    def test_failed_rename_type_keeps_limits(self):
        type_store.create({"name": "silver"})
        with self.assertRaises(exception.TypeExists):
            type_store.update(self.gold, {"name": "silver"})
        self.assertEqual(self.SET, quotas.project_limits("p"))

    def test_rename_type_replaces_stale_limits(self):
        quotas.set_limits("p", {"volumes_silver": 9})
        type_store.update(self.gold, {"name": "silver"})
        self.assertEqual(1, quotas.project_limits("p")["volumes_silver"])

    def test_delete_type_deletes_limits(self):
        type_store.delete(self.gold)
        self.assertEqual({"volumes_golden": 4}, quotas.project_limits("p"))
        self.assertEqual({"volumes_golden": 4}, quotas.class_limits("c"))

    def test_list_names_returns_types_visible_to_project(self):
        type_store.create({"name": "black", "is_public": False})
        self.assertEqual(["black", "gold"], type_store.list_names({}))
        self.assertEqual(["gold"], type_store.list_names({"known_to": "p"}))


PROJECT = db_rows.PROJECT
HOST = {"project_id": PROJECT, "host": "here@fake#pool"}


class QuotaClaimsCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.gold = type_store.create({"name": "gold"})["id"]

    def create(self, size=1, **values):
        return volume_store.create({**HOST, "size_gib": size, **values}, {})

    def assert_exceeded(self, says, function, *arguments, **values):
        before = db_rows.list_volumes()
        with self.assertRaisesRegex(exception.QuotaExceeded, says):
            function(*arguments, **values)
        self.assertEqual(before, db_rows.list_volumes())


class CreateTest(QuotaClaimsCase):
    def test_create_up_to_volume_limit_succeeds(self):
        quotas.set_limits(PROJECT, {"volumes": 2})
        self.create()
        self.create()
        self.assert_exceeded("for volumes: 1 more requested, 2 of 2 are used", self.create)
        self.create(project_id="other")

    def test_create_up_to_gigabyte_limit_succeeds(self):
        quotas.set_limits(PROJECT, {"gigabytes": 5})
        self.create(3)
        self.assert_exceeded("for gigabytes: 3 more requested, 3 of 5 are used", self.create, 3)
        self.create(2)

    def test_create_with_limit_zero_is_refused(self):
        quotas.set_limits(PROJECT, {"volumes": 0})
        self.assert_exceeded("for volumes: 1 more requested, 0 of 0", self.create)

    def test_create_larger_than_per_volume_limit_is_refused(self):
        quotas.set_limits(PROJECT, {"per_volume_gigabytes": 4})
        self.assert_exceeded("5 GiB requested, and a volume may have at most 4", self.create, 5)
        self.create(4)

    def test_create_beyond_type_limit_is_refused(self):
        quotas.set_limits(PROJECT, {"volumes_gold": 2, "gigabytes_gold": 3, "volumes_silver": 0})
        self.create(volume_type_id=self.gold)
        gold = {"volume_type_id": self.gold}
        self.assert_exceeded(
            "for gigabytes_gold: 3 more requested, 1 of 3", self.create, 3, **gold
        )
        self.create(**gold)
        self.assert_exceeded("for volumes_gold: 1 more requested, 2 of 2", self.create, **gold)
        self.create(100)

    def test_create_uses_class_limit_then_configuration(self):
        CONF.set_override("quota_volumes", 1, group="quota")
        self.create()
        self.assert_exceeded("1 of 1 are used", self.create)
        quotas.set_class_limits("default", {"volumes": 2})
        self.create()
        self.assert_exceeded("2 of 2 are used", self.create)
        quotas.set_limits(PROJECT, {"volumes": -1})
        self.create()

    def test_create_after_delete_succeeds(self):
        quotas.set_limits(PROJECT, {"volumes": 1})
        volume = self.create(state="ready")
        volume_store.transition(volume["id"], volume_store.Event.DELETE)
        self.assert_exceeded("1 of 1 are used", self.create)
        volume_store.transition(volume["id"], volume_store.Event.DELETED)
        self.create()

    def test_create_above_lowered_limit_is_refused(self):
        for _ in range(3):
            self.create()
        quotas.set_limits(PROJECT, {"volumes": 1})
        self.assert_exceeded("1 more requested, 3 of 1 are used", self.create)


class ExtendTest(QuotaClaimsCase):
    def extend(self, volume, size):
        return volume_store.extend(volume["id"], PROJECT, size)

    def test_extend_within_gigabyte_limit_succeeds(self):
        quotas.set_limits(PROJECT, {"gigabytes": 5, "volumes": 0})
        volume = db_rows.add_volume(size_gib=2)
        self.assert_exceeded("for gigabytes: 4 more requested, 2 of 5", self.extend, volume, 6)
        self.assertEqual("extending", self.extend(volume, 5)["state"])
        other = db_rows.add_volume(project_id=PROJECT, size_gib=1)
        self.assert_exceeded("for gigabytes: 1 more requested, 6 of 5", self.extend, other, 2)

    def test_failed_extend_counts_old_size(self):
        quotas.set_limits(PROJECT, {"gigabytes": 5})
        volume = self.extend(db_rows.add_volume(), 5)
        volume_store.transition(volume["id"], volume_store.Event.EXTEND_FAILED)
        self.create(4)

    def test_extend_within_type_limit_succeeds(self):
        quotas.set_limits(PROJECT, {"gigabytes_gold": 2})
        volume = db_rows.add_volume(volume_type_id=self.gold)
        self.assert_exceeded("gigabytes_gold: 2 more requested, 1 of 2", self.extend, volume, 3)
        self.extend(volume, 2)

    def test_extend_beyond_per_volume_limit_is_refused(self):
        quotas.set_limits(PROJECT, {"per_volume_gigabytes": 2})
        self.assert_exceeded("3 GiB requested, .* at most 2", self.extend, db_rows.add_volume(), 3)

    def test_extend_in_other_state_raises_invalid_transition(self):
        with self.assertRaises(exception.InvalidTransition):
            self.extend(db_rows.add_volume("error"), 2)
        with self.assertRaises(exception.VolumeNotFound):
            self.extend({"id": "x"}, 2)


class RetypeTest(QuotaClaimsCase):
    def test_retype_checks_limits_of_new_type_only(self):
        quotas.set_limits(PROJECT, {"volumes": 0, "gigabytes": 0, "per_volume_gigabytes": 1})
        claim = quotas.deltas_of_retype(self.gold, 5)
        quotas.check(PROJECT, claim)
        quotas.set_limits(PROJECT, {"gigabytes_gold": 4})
        self.assert_exceeded("gigabytes_gold: 5 more", quotas.check, PROJECT, claim)
        quotas.set_limits(PROJECT, {"gigabytes_gold": -1, "volumes_gold": 0})
        self.assert_exceeded("volumes_gold: 1 more", quotas.check, PROJECT, claim)

    def test_retype_counts_snapshots_of_volume(self):
        quotas.set_limits(PROJECT, {"gigabytes_gold": 11, "snapshots_gold": 1})
        counted = quotas.SnapshotsOfVolume(2, 7)
        claim = quotas.deltas_of_retype(self.gold, 5, counted)
        self.assert_exceeded("gigabytes_gold: 12 more", quotas.check, PROJECT, claim)
        override(self, "no_snapshot_gb_quota", True, group="quota")
        claim = quotas.deltas_of_retype(self.gold, 5, counted)
        self.assert_exceeded("snapshots_gold: 2 more", quotas.check, PROJECT, claim)


CONNECTOR = {"host": "node-1"}
SERVER = "11111111-1111-4111-8111-111111111111"


class AttachmentsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        quotas.set_limits(PROJECT, {"attachments": 1})

    def reserve(self, volume_id=None, first=None, **values):
        values = {"project_id": PROJECT, "user_id": "u", **values}
        volume_id = volume_id or db_rows.add_volume(project_id=values["project_id"])["id"]
        return attachment_store.reserve(volume_id, values, first=first)

    def hold(self, volume_id=None):
        legacy.reserve(volume_id or db_rows.add_volume()["id"], PROJECT, "u")

    def attach(self, volume_id=None):
        request = {"project_id": PROJECT, "user_id": "u", "instance_uuid": None, "host": "node-1"}
        request |= {"mountpoint": "/dev/vdb", "mode": None}
        return legacy.attach(volume_id or db_rows.add_volume()["id"], request)

    def connect(self, volume_id=None):
        volume_id = volume_id or db_rows.add_volume()["id"]
        creator = legacy.Creator(PROJECT, "u")
        legacy.begin_connection(
            volume_id, creator, CONNECTOR, lambda _locked: {"host": "node-1", "connector": {}}
        )

    def assert_exceeded(self, function, *arguments):
        before = db_rows.list_attachments()
        with self.assertRaisesRegex(
            exception.QuotaExceeded, "AttachmentLimitExceeded: .*attachments: 1 more .*1 of 1"
        ):
            function(*arguments)
        self.assertEqual(before, db_rows.list_attachments())

    def test_attachments_up_to_limit_are_made(self):
        row = self.reserve()
        for function in (self.reserve, self.hold, self.attach, self.connect):
            with self.subTest(function.__name__):
                self.assert_exceeded(function)
        self.reserve(project_id="other")
        attachment_store.transition(row["id"], row["volume_id"], Event.CANCEL)
        self.reserve()

    def test_multiattach_volume_counts_each_attachment(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        self.reserve(volume)
        self.assert_exceeded(self.reserve, volume)
        quotas.set_limits(PROJECT, {"attachments": -1})
        self.reserve(volume)

    def test_duplicate_request_at_limit_returns_its_attachment(self):
        values = {"instance_uuid": SERVER, "connector": CONNECTOR}
        row = self.reserve(**values)
        self.assertEqual(row["id"], self.reserve(row["volume_id"], **values)["id"])

    def test_attach_by_older_calls_counts_once(self):
        volume = db_rows.add_volume()["id"]
        self.hold(volume)
        self.connect(volume)
        self.attach(volume)
        self.attach(volume)
        self.assertEqual(1, quotas.usage(PROJECT)["attachments"].total)
        self.assert_exceeded(self.hold)

    def test_limit_of_class_then_configuration_applies(self):
        quotas.delete_limits(PROJECT)
        self.reserve()
        self.reserve()
        CONF.set_override("quota_attachments", 3, group="quota")
        self.addCleanup(CONF.clear_override, "quota_attachments", group="quota")
        self.reserve()
        with self.assertRaisesRegex(exception.QuotaExceeded, "3 of 3"):
            self.reserve()
        quotas.set_class_limits("default", {"attachments": 4})
        self.reserve()
        with self.assertRaisesRegex(exception.QuotaExceeded, "4 of 4"):
            self.reserve()
        quotas.set_limits(PROJECT, {"attachments": -1})
        self.reserve()

    def test_precondition_of_refused_reservation_is_rolled_back(self):
        self.reserve()
        key = {"digest": "d", "fingerprint": "f", "resource_id": "r", "made": True}
        key["expires_at"] = models.now()

        def first(connection):
            connection.execute(models.idempotency_keys.insert().values(**key))

        with self.assertRaises(exception.QuotaExceeded):
            self.reserve(first=first)
        with session.reader() as connection:
            self.assertIsNone(connection.execute(models.idempotency_keys.select()).first())


class CostTest(QuotaClaimsCase):
    def test_unlimited_attachments_need_no_statement(self):
        for multiattach, expected in ((False, 3), (True, 6)):
            volume = db_rows.add_volume(multiattach=multiattach)["id"]
            values = {"project_id": PROJECT, "user_id": "u"}
            reserve = functools.partial(attachment_store.reserve, volume, values)
            self.assertEqual(expected, self._statements(reserve))

    def _statements(self, function):
        before = session.counters().statements
        function()
        return session.counters().statements - before

    def test_unlimited_resource_is_not_counted(self):
        self.assertEqual(2, self._statements(self.create))
        quotas.set_limits(PROJECT, {"volumes": 100, "volumes_gold": 100})
        gold = {"volume_type_id": self.gold}
        # One more looks whether the type is what it was.
        self.assertEqual(4, self._statements(lambda: self.create(**gold)))
