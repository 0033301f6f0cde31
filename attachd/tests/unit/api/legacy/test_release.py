# SPDX-License-Identifier: Apache-2.0
"""Tests of the release of volumes that are not attached, with their connections."""

from attachd.api.legacy import handlers, release
from attachd.api.legacy.holders import VolumeHolders
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.unit.api.legacy import case


class Case(case.Case):
    def setUp(self):
        super().setUp()
        db_rows.change_volume(self.volume_id, multiattach=True)

    def reserve(self, ctx=None):
        handlers.reserve(ctx or self.ctx, self.volume_id)

    def release(self, function, ctx=None):
        ctx = ctx or self.ctx
        function(ctx, Volume.get(ctx, self.volume_id), VolumeHolders.load(self.volume_id))


class ReleaseCallersTest(Case):
    def release_callers(self, ctx=None):
        self.release(release.release_callers, ctx)

    def test_release_callers_with_only_hold_closes_connections(self):
        self.reserve()
        self.reserve(self.other_user())
        connection_id = self.connect()
        self.connect(user_id="other")
        self.release_callers()
        self.assertEqual([(None, (), [connection_id])], self.closed())
        self.assertEqual(["hold", "connection", "connection"], self.kinds())

    def test_release_callers_without_hold_closes_nothing(self):
        self.connect()
        self.release_callers()
        self.assertEqual([], self.closed())

    def test_release_callers_keeps_hold_of_other_user(self):
        self.reserve(self.other_user())
        self.release_callers()
        self.assertEqual(["hold"], self.kinds())
        self.release_callers(api_context.make_context(*api_context.ADMIN))
        self.assertEqual([], self.kinds())

    def test_release_callers_with_ambiguous_connection_keeps_it(self):
        self.reserve()
        self.reserve()
        self.connect()
        self.release_callers()
        self.attach()
        self.reserve()
        self.release_callers()
        self.assertEqual([], self.closed())

    def test_release_callers_keeps_connection_of_attachment(self):
        self.reserve()
        self.connect(parent_id="other")
        self.release_callers()
        self.assertEqual([], self.closed())


class ReleaseAllTest(Case):
    def test_release_all_removes_rows_of_all_users(self):
        self.reserve()
        self.reserve(self.other_user())
        self.connect(user_id="other")
        self.release(release.release_all)
        self.assertEqual([(None, ())], self.closed())
        self.assertEqual(["connection"], self.kinds())
