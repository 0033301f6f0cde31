# SPDX-License-Identifier: Apache-2.0
"""Kinds of differences, and their meanings."""

import unittest
from unittest import mock

from attachd.drivers import abilities, base
from attachd.manager.audit import rules
from attachd.manager.audit.rules import MEANINGS, ExportComparison, Kind

VOLUME = base.VolumeRef("v", 1)
DATA = {Kind.VOLUME_WITHOUT_DATA, Kind.DATA_WITHOUT_VOLUME, Kind.SIZE, Kind.WRONG_BACKEND}


def export(name, mode="rw"):
    return base.Export(name, {}, mode)


def listed(*names, mode="rw", parts=None, sessions=()):
    parts = [f"account {name}" for name in names] if parts is None else parts
    return base.BackendExport("v", mode, frozenset(names), frozenset(parts), frozenset(sessions))


def expected(_volume, exports):
    for mode in ("rw", "ro"):
        if names := [item.attachment_id for item in exports if item.mode == mode]:
            yield listed(*names, mode=mode)


class RulesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.driver = mock.create_autospec(abilities.Audit, instance=True)
        self.driver.expected_exports.side_effect = expected

    def excess(self, *exported, certain=(), doubtful=()):
        sides = ExportComparison(VOLUME, certain, doubtful, exported)
        return list(rules.find_unexpected(self.driver, sides))

    def lacking(self, *exported, certain=(), doubtful=()):
        sides = ExportComparison(VOLUME, certain, doubtful, exported)
        found = list(rules.find_missing(self.driver, sides))
        return [(to.attachment_id, kind, what) for to, (kind, what) in found]

    def test_find_equal_sides_returns_nothing(self):
        sides = {"certain": [export("a"), export("b", "ro")]}
        both = listed("a"), listed("b", mode="ro")
        self.assertEqual(([], []), (self.excess(*both, **sides), self.lacking(*both, **sides)))

    def test_find_doubtful_exports_returns_nothing(self):
        for existing in ((), [listed("a")]):
            sides = {"doubtful": [export("a")]}
            self.assertEqual(
                [], self.excess(*existing, **sides) + self.lacking(*existing, **sides)
            )

    def test_find_unexpected_export_returns_one_difference(self):
        ((kind, what),) = self.excess(listed("a", sessions="a"))
        self.assertEqual(Kind.ORPHAN_EXPORT, kind)
        self.assertEqual(
            "It is exported (rw): a has access, there is account a, a is logged in.", what
        )
        ((kind, what),) = self.excess(listed())
        self.assertEqual((Kind.ORPHAN_EXPORT, "It is exported (rw): to no host."), (kind, what))

    def test_find_unexpected_parts_returns_one_difference_each(self):
        existing = listed("a", "b", sessions=("a", "b", "c"))
        self.assertEqual(
            [
                (Kind.EXTRA_HOST, "b has access (rw)."),
                (Kind.EXTRA_PART, "There is account b (rw)."),
                (Kind.SESSION, "c is logged in (rw)."),
            ],
            self.excess(existing, certain=[export("a")]),
        )

    def test_find_unexpected_host_in_other_mode_returns_wrong_mode(self):
        attachment_id = export("a", "ro")
        ((kind, _what),) = self.excess(listed("a"), certain=[attachment_id])
        self.assertEqual(Kind.WRONG_MODE, kind)
        found = self.excess(listed("a", "b"), certain=[attachment_id, export("b")])
        self.assertEqual([Kind.WRONG_MODE, Kind.EXTRA_PART], [kind for kind, _what in found])

    def test_find_missing_returns_one_difference_per_export(self):
        self.assertEqual(
            [("a", Kind.MISSING_EXPORT,
              "Of attachment a: a has no access (rw), there is no account a (rw).")],
            self.lacking(listed("b"), certain=[export("a"), export("b")]),
        )  # fmt: skip
        ((to, _kind, what),) = self.lacking(listed("a", parts=()), certain=[export("a")])
        self.assertEqual(("a", "Of attachment a: there is no account a (rw)."), (to, what))

    def test_meanings_have_causes_and_data_is_never_repaired(self):
        self.assertEqual(set(Kind), set(MEANINGS))
        for kind, meaning in MEANINGS.items():
            self.assertTrue(meaning.cause.endswith((".", "?")), kind)
            self.assertEqual(kind is Kind.ORPHAN_ACCOUNT, meaning.action == "", kind)
        self.assertEqual(set(), {kind for kind in DATA if MEANINGS[kind].safe})

    def test_each_kind_is_repaired_or_says_why_not(self):
        for kind, meaning in MEANINGS.items():
            self.assertNotEqual(meaning.safe, bool(meaning.kept), kind)
