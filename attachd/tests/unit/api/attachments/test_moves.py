# SPDX-License-Identifier: Apache-2.0
"""Requests of moves, without managers; functional/test_moves.py has the moves."""

from unittest import mock

from attachd import exception
from attachd.api import detach_guard
from attachd.api.attachments import agent_detach, moves
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.fixtures.api_context import new_id


class MovesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("member")
        self.server = new_id()
        volume = db_rows.add_volume(host="here@fake#pool")["id"]
        self.source = db_rows.add_attachment(volume, "attached", instance_uuid=self.server)["id"]
        self.volume = Volume.get(self.ctx, volume)

    def resolve(self, **fields):
        return moves.resolve(self.ctx, self.volume, {"move_from": self.source, **fields})

    def test_destination_has_the_server_and_mode_ro_of_its_source(self):
        expected = {"move_from": self.source, "instance_uuid": self.server}
        self.assertEqual(expected, self.resolve())
        db_rows.change_attachment(self.source, mode="ro")
        self.assertEqual({**expected, "mode": "ro"}, self.resolve())
        self.assertEqual("rw", self.resolve(mode="rw")["mode"])

    def test_other_servers_and_volumes_are_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, f"of server {self.server}"):
            self.resolve(instance_uuid=new_id())
        other = Volume.get(self.ctx, db_rows.add_volume()["id"])
        with self.assertRaisesRegex(exception.InvalidInput, f"of volume {self.volume.id}"):
            moves.resolve(self.ctx, other, {"move_from": self.source})

    def test_field_excludes_instead_of(self):
        moves.check_field({"move_from": self.source})
        with self.assertRaisesRegex(exception.InvalidInput, "instead_of"):
            moves.check_field({"move_from": self.source, "instead_of": self.source})

    def test_source_that_compute_uses_is_not_ended(self):
        destination = db_rows.add_attachment(
            self.volume.id, "connected", move_from=self.source, instance_uuid=self.server
        )["id"]
        in_use = exception.AttachmentInUse(reason="Compute uses it.")
        with (
            mock.patch.object(detach_guard, "check", side_effect=in_use) as check,
            mock.patch.object(agent_detach, "release_device") as release,
            mock.patch.object(manager_api, "finish_move") as finish,
        ):
            attachment = Attachment.get(self.ctx, destination)
            with self.assertRaises(exception.AttachmentInUse):
                moves.finish(self.ctx, None, attachment)
        self.assertEqual(self.source, check.call_args.args[-1].id)
        release.assert_not_called()
        finish.assert_not_called()
