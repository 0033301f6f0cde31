# SPDX-License-Identifier: Apache-2.0
"""Which rule keeps a caller from joining others, and who cannot write whatever happens."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import policy, several
from attachd.api.volumes import policy as volume_policy
from attachd.db import types
from attachd.objects import Volume
from attachd.tests import databases, rows


class DeniedTest(unittest.TestCase):
    def denied(self, rules, *, multiattach=True, bootable=False):
        volume = mock.Mock(multiattach=multiattach, bootable=bootable, project_id="p")
        with mock.patch.object(several.rules, "allows", lambda _ctx, rule, _of: rule not in rules):
            return several.denied(mock.Mock(), volume)

    def test_whoever_may_is_denied_nothing(self):
        self.assertEqual("", self.denied(set(), bootable=True))

    def test_a_rule_is_for_all_and_another_one_for_bootable_volumes(self):
        for rules, bootable, expected in (
            ({volume_policy.MULTIATTACH}, False, volume_policy.MULTIATTACH),
            ({policy.BOOTABLE}, False, ""),
            ({policy.BOOTABLE}, True, policy.BOOTABLE),
        ):
            with self.subTest(rules=rules, bootable=bootable):
                self.assertEqual(expected, self.denied(rules, bootable=bootable))

    def test_an_ordinary_volume_has_no_several(self):
        rules = {volume_policy.MULTIATTACH, policy.BOOTABLE}
        self.assertEqual("", self.denied(rules, multiattach=False, bootable=True))


class ModeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")

    def volume(self, specs=None, **values):
        if specs is not None:
            values["volume_type_id"] = types.create({"name": "t", "extra_specs": specs})["id"]
        return Volume.from_row(None, rows.add_volume(**values))

    def test_a_writer_is_refused_what_nobody_may_write(self):
        for volume, why in (
            (self.volume(admin_metadata={"readonly": "True"}), "it is read-only"),
            (self.volume({"mode": "RO"}), "its type says mode='RO'"),
        ):
            with self.assertRaisesRegex(exception.ModeNotAllowed, why):
                several.check_mode(volume, "rw")
            several.check_mode(volume, "ro")
            several.check_mode(volume, None)

    def test_who_the_writer_is_is_decided_later(self):
        several.check_mode(self.volume({"mode": "RO", "multiattach": "<is> True"}), "rw")
        several.check_mode(self.volume(), "rw")
