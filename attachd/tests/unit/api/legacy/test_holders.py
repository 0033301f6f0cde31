# SPDX-License-Identifier: Apache-2.0
"""What there is of a volume, sorted."""

from attachd.api.legacy.holders import VolumeHolders
from attachd.objects import Volume
from attachd.tests import asking, rows
from attachd.tests.unit.api.legacy import case


class LoadTest(case.Case):
    def test_load_sorts_rows_by_kind(self):
        self.volume_id = rows.add_volume(multiattach=True)["id"]
        failed = rows.add_attachment(self.volume_id, "connect_failed")["id"]
        rows.add_attachment(self.volume_id, "held", user_id="u")
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
        rows.add_attachment(self.volume_id, "connect_failed")
        first = rows.add_attachment(self.volume_id, "connected")["id"]
        second = rows.add_attachment(self.volume_id, "attached", instance_uuid="s")["id"]
        self.assertEqual(
            f"attachment {first} (attaching), attachment {second} of server s (attached)",
            VolumeHolders.load(self.volume_id).describe(),
        )


class ForCallerTest(case.Case):
    def setUp(self):
        super().setUp()
        self.volume_id = rows.add_volume(multiattach=True)["id"]

    def begin(self, user):
        """Have a user begin to attach; return the ids of what that leaves."""
        held = rows.add_attachment(self.volume_id, "held", user_id=user)["id"]
        return [held, self.connect(user_id=user)]

    def narrowed(self, ctx):
        holders = VolumeHolders.load(self.volume_id).for_caller(
            ctx, Volume.get(ctx, self.volume_id)
        )
        return [row["id"] for row in (*holders.holds, *holders.connections)]

    def test_for_caller_returns_rows_of_user(self):
        theirs, mine = self.begin("other"), self.begin("u")
        self.assertEqual(mine, self.narrowed(self.ctx))
        self.assertEqual(theirs, self.narrowed(self.somebody_else()))

    def test_for_caller_ignores_other_attachments(self):
        rows.add_attachment(self.volume_id, "attached", user_id="u")
        holders = VolumeHolders.load(self.volume_id)
        ctx = self.ctx
        self.assertEqual([], holders.for_caller(ctx, Volume.get(ctx, self.volume_id)).used)
        self.attach()
        holders = VolumeHolders.load(self.volume_id).for_caller(
            ctx, Volume.get(ctx, self.volume_id)
        )
        self.assertEqual(["legacy"], [row["kind"] for row in holders.used])

    def test_for_caller_as_admin_returns_rows_of_hold_owner(self):
        theirs = self.begin("other")
        self.assertEqual([], self.narrowed(self.ctx))
        admin = asking.context(*asking.ADMIN)
        self.assertEqual(theirs, self.narrowed(admin))
        mine = self.begin("u")
        self.assertEqual(mine, self.narrowed(admin))

    def test_for_caller_without_multiattach_returns_all_rows(self):
        theirs = self.begin("other")
        rows.change_volume(self.volume_id, multiattach=False)
        self.assertEqual(theirs, self.narrowed(self.ctx))
