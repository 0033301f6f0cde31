# SPDX-License-Identifier: Apache-2.0
"""Names of targets and accounts; names that hosts already use must not change."""

import dataclasses
import unittest

from attachd.drivers import base, iscsi

VOLUME_ID = "8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11"
PREFIX = "iqn.2026-01.internal.attachd:volume-"
HOST = "iqn.2026-01.test:a"


def export(initiator, mode="rw"):
    return base.Export("attachment", {"initiator": initiator}, mode)


class NamesTest(unittest.TestCase):
    def test_target_name_has_volume_id_and_mode(self):
        found = [iscsi.target(PREFIX, VOLUME_ID, mode) for mode in ("rw", "ro")]
        self.assertEqual([f"{PREFIX}{VOLUME_ID}", f"{PREFIX}{VOLUME_ID}-ro"], found)

    def test_account_name_is_stable_and_unique_per_target(self):
        name = iscsi.account(f"{PREFIX}{VOLUME_ID}", HOST)
        self.assertEqual("cd9506ea-bf86-5303-93b9-e206ce40c059", name)
        self.assertTrue(iscsi.is_account(name))
        self.assertNotEqual(name, iscsi.account(f"{PREFIX}{VOLUME_ID}-ro", HOST))

    def test_is_account_of_other_names_is_false(self):
        for user in ("admin", "attachd-sentinel.tgt.aaaa", VOLUME_ID, ""):
            self.assertFalse(iscsi.is_account(user), user)

    def test_initiator_accepts_only_iscsi_names(self):
        given = (HOST, "eui.02004567A425678D", None, "", "ALL", f"{HOST}\nx", 7)
        found = [iscsi.initiator(export(item)) for item in given]
        self.assertEqual([HOST, "eui.02004567A425678D", "", "", "", "", ""], found)
        self.assertEqual("", iscsi.initiator(base.Export("attachment", {})))

    def test_initiators_are_selected_by_mode(self):
        exports = [export(HOST), export(f"{HOST}b", "ro"), export(""), export(HOST)]
        found = [iscsi.initiators(exports, mode) for mode in ("rw", "ro")]
        self.assertEqual([{HOST}, {f"{HOST}b"}], found)

    def test_own_target_is_parsed_into_volume_and_attachment(self):
        own = iscsi.own_target("", VOLUME_ID, "attachment")
        self.assertEqual((VOLUME_ID, "ro", "attachment"), iscsi.parse_target(own))
        self.assertEqual((VOLUME_ID, "ro", ""), iscsi.parse_target(f"{VOLUME_ID}-ro"))
        self.assertEqual((VOLUME_ID, "rw", ""), iscsi.parse_target(VOLUME_ID))

    def test_export_with_own_connection_shares_no_target(self):
        own = dataclasses.replace(export(HOST), own_connection=True)
        self.assertEqual([export(HOST)], iscsi.sharing([own, export(HOST)], "rw"))
