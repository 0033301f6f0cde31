# SPDX-License-Identifier: Apache-2.0
"""Tests of the rows that hold a volume."""

from attachd.api.legacy.holders import VolumeHolders
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.unit.api.legacy import case


class LoadTest(case.Case):
    def test_load_sorts_rows_by_kind(self):
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]
        failed = db_rows.add_attachment(self.volume_id, "connect_failed")["id"]
        db_rows.add_attachment(self.volume_id, "held", user_id="u")
        connection = self.connect()
        self.attach()
        holders = VolumeHolders.load(self.volume_id)
        (attached,) = [row["id"] for row in holders.used]
        self.assertEqual([failed, attached], [row["id"] for row in holders.attachments])
        self.assertEqual([connection], [row["id"] for row in holders.connections])
        self.assertEqual([], list(holders.holds), "os-attach has used it")
        self.assertNotIn("connector", holders.connections[0])


class DescribeTest(case.Case):
    def test_describe_lists_used_attachments_with_states(self):
        db_rows.add_attachment(self.volume_id, "connect_failed")
        first = db_rows.add_attachment(self.volume_id, "connected")["id"]
        second = db_rows.add_attachment(self.volume_id, "attached", instance_uuid="s")["id"]
        self.assertEqual(
            f"attachment {first} (attaching), attachment {second} of server s (attached)",
            VolumeHolders.load(self.volume_id).describe(),
        )


class ForCallerTest(case.Case):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    def reserve_and_connect(self, user):
        """Reserve and connect as a user; return the ids of the new rows."""
        held = db_rows.add_attachment(self.volume_id, "held", user_id=user)["id"]
        return [held, self.connect(user_id=user)]

    def ids_for_caller(self, ctx):
        holders = VolumeHolders.load(self.volume_id).for_caller(
            ctx, Volume.get(ctx, self.volume_id)
        )
        return [row["id"] for row in (*holders.holds, *holders.connections)]

    def test_for_caller_returns_rows_of_user(self):
        other_ids, own_ids = self.reserve_and_connect("other"), self.reserve_and_connect("u")
        self.assertEqual(own_ids, self.ids_for_caller(self.ctx))
        self.assertEqual(other_ids, self.ids_for_caller(self.other_user()))

    def test_for_caller_ignores_other_attachments(self):
        db_rows.add_attachment(self.volume_id, "attached", user_id="u")
        holders = VolumeHolders.load(self.volume_id)
        ctx = self.ctx
        self.assertEqual([], holders.for_caller(ctx, Volume.get(ctx, self.volume_id)).used)
        self.attach()
        holders = VolumeHolders.load(self.volume_id).for_caller(
            ctx, Volume.get(ctx, self.volume_id)
        )
        self.assertEqual(["legacy"], [row["kind"] for row in holders.used])

    def test_for_caller_as_admin_returns_rows_of_hold_owner(self):
        other_ids = self.reserve_and_connect("other")
        self.assertEqual([], self.ids_for_caller(self.ctx))
        admin = api_context.make_context(*api_context.ADMIN)
        self.assertEqual(other_ids, self.ids_for_caller(admin))
        own_ids = self.reserve_and_connect("u")
        self.assertEqual(own_ids, self.ids_for_caller(admin))

    def test_for_caller_without_multiattach_returns_all_rows(self):
        other_ids = self.reserve_and_connect("other")
        db_rows.change_volume(self.volume_id, multiattach=False)
        self.assertEqual(other_ids, self.ids_for_caller(self.ctx))
