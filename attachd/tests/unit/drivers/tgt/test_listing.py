# SPDX-License-Identifier: Apache-2.0
"""Targets and accounts as listed for an audit."""

import dataclasses
import unittest
import uuid

from attachd.drivers import base
from attachd.drivers.tgt import listing, parser

SENTINEL = "attachd-sentinel.tgt."
UNIT = parser.Lun("5c51", "/volumes/v", 1074, online=True, read_only=False)
TARGET = parser.Target(7, "name", True, {1: UNIT}, (f"{SENTINEL}a", "u"), ("a", "b"), ("b", "c"))


def exported(target, mode="rw"):
    return listing.exported("v", mode, target, "/volumes/v", "5c51")


class ExportedTest(unittest.TestCase):
    def test_exported_has_initiators_accounts_and_sessions(self):
        parts = frozenset(["CHAP account u", listing.IN_SERVICE])
        self.assertEqual(
            base.BackendExport("v", "rw", frozenset("ab"), parts, frozenset("bc")),
            exported(TARGET),
        )

    def test_exported_with_wrong_unit_is_not_in_service(self):
        changes = (
            {"online": False},
            {"path": "/volumes/other"},
            {"scsi_id": "x"},
            {"read_only": True},
        )
        wrong = [
            dataclasses.replace(TARGET, ready=False),
            dataclasses.replace(TARGET, luns={}),
            *(
                dataclasses.replace(TARGET, luns={1: dataclasses.replace(UNIT, **change)})
                for change in changes
            ),
        ]
        for item in wrong:
            self.assertEqual({"CHAP account u"}, exported(item).parts, item)

    def test_exported_read_only_with_writable_unit_is_not_in_service(self):
        self.assertNotIn(listing.IN_SERVICE, exported(TARGET, "ro").parts)


class OwnTargetTest(unittest.TestCase):
    def listed(self, **changes):
        target = dataclasses.replace(TARGET, **changes)
        return listing.exported("v", "ro", target, "/volumes/v", "5c51", "x")

    def test_mode_is_that_of_the_unit(self):
        reading = dataclasses.replace(UNIT, read_only=True)
        found = [self.listed(luns=luns).mode for luns in ({1: UNIT}, {1: reading}, {})]
        self.assertEqual(["rw", "ro", "ro"], found)

    def test_holders_and_parts_name_the_attachment(self):
        found = self.listed(initiators=("a",), sessions=())
        self.assertEqual({"a (attachment x)"}, found.holders)
        self.assertEqual({"CHAP account u", "the target of attachment x"}, found.parts)

    def test_incomplete_target_is_listed_beside_others(self):
        self.assertIn("the target of attachment x, incomplete", self.listed(luns={}).parts)


class OwnersTest(unittest.TestCase):
    def test_target_with_sentinel_of_other_backend_is_foreign(self):
        for accounts, foreign in (
            ((f"{SENTINEL}a",), False),
            (("attachd-sentinel.tgt2.a", "u"), True),
            (("u",), False),
            ((), False),
        ):
            target = dataclasses.replace(TARGET, accounts=accounts)
            self.assertEqual(foreign, listing.is_foreign(target, SENTINEL), accounts)

    def test_unbound_account_with_own_name_is_orphan(self):
        lost, bound = (str(uuid.uuid5(uuid.NAMESPACE_DNS, item)) for item in "ab")
        target = dataclasses.replace(TARGET, accounts=(f"{SENTINEL}a", bound))
        found = listing.list_orphans([f"{SENTINEL}a", lost, bound, "admin"], [target])
        self.assertEqual([f"CHAP account {lost}"], [item.name for item in found])
        self.assertIn(f"--user {lost}", found[0].remedy)

    def test_unbound_account_on_shared_tgtd_is_not_orphan(self):
        lost = str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))
        sentinels = [f"{SENTINEL}a", "attachd-sentinel.other.a"]
        self.assertEqual([], listing.list_orphans([*sentinels, lost], []))
        self.assertEqual(1, len(listing.list_orphans([f"{SENTINEL}a", f"{SENTINEL}b", lost], [])))
