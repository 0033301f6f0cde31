# SPDX-License-Identifier: Apache-2.0
"""What is given back of a volume that is not attached, and what is closed with it."""

from attachd.api.legacy import handlers, release
from attachd.api.legacy.holders import VolumeHolders
from attachd.objects import Volume
from attachd.tests import asking, rows
from attachd.tests.unit.api.legacy import case


class Case(case.Case):
    def setUp(self):
        super().setUp()
        rows.change_volume(self.volume_id, multiattach=True)

    def reserve(self, ctx=None):
        handlers.reserve(ctx or self.ctx, self.volume_id)

    def give(self, how, ctx=None):
        ctx = ctx or self.ctx
        how(ctx, Volume.get(ctx, self.volume_id), VolumeHolders.load(self.volume_id))


class ReleaseCallersTest(Case):
    def give_back(self, ctx=None):
        self.give(release.release_callers, ctx)

    def test_release_callers_with_only_hold_closes_connections(self):
        self.reserve()
        self.reserve(self.somebody_else())
        mine = self.connect()
        self.connect(user_id="other")
        self.give_back()
        self.assertEqual([(None, (), [mine])], self.closed())
        self.assertEqual(["hold", "connection", "connection"], self.kinds())

    def test_release_callers_without_hold_closes_nothing(self):
        self.connect()
        self.give_back()
        self.assertEqual([], self.closed())

    def test_release_callers_keeps_hold_of_other_user(self):
        self.reserve(self.somebody_else())
        self.give_back()
        self.assertEqual(["hold"], self.kinds())
        self.give_back(asking.context(*asking.ADMIN))
        self.assertEqual([], self.kinds())

    def test_release_callers_with_ambiguous_connection_keeps_it(self):
        self.reserve()
        self.reserve()
        self.connect()
        self.give_back()
        self.attach()
        self.reserve()
        self.give_back()
        self.assertEqual([], self.closed())

    def test_release_callers_keeps_connection_of_attachment(self):
        self.reserve()
        self.connect(parent_id="somebody's")
        self.give_back()
        self.assertEqual([], self.closed())


class ReleaseAllTest(Case):
    def test_release_all_removes_rows_of_all_users(self):
        self.reserve()
        self.reserve(self.somebody_else())
        self.connect(user_id="other")
        self.give(release.release_all)
        self.assertEqual([(None, ())], self.closed())
        self.assertEqual(["connection"], self.kinds())
