# SPDX-License-Identifier: Apache-2.0
"""Taking volumes, giving them back, and saying that they are attached."""

from attachd import exception
from attachd.api.legacy import handlers
from attachd.tests import asking, rows
from attachd.tests.unit.api.legacy import case


class Case(case.Case):
    def reserve(self):
        handlers.reserve(self.ctx, self.volume_id)

    def unreserve(self):
        handlers.unreserve(self.ctx, self.volume_id)


class ReserveTest(Case):
    def test_a_volume_is_taken_and_given_back(self):
        self.reserve()
        self.assertEqual("attaching", self.status())
        self.unreserve()
        self.assertEqual("available", self.status())
        self.assertEqual([], self.closed())

    def test_what_was_opened_meanwhile_is_closed(self):
        self.reserve()
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_what_is_attached_keeps_what_was_opened(self):
        self.connect()
        self.attach()
        self.unreserve()
        self.assertEqual([], self.closed())

    def test_what_may_be_another_ones_is_left_alone(self):
        rows.change_volume(self.volume_id, multiattach=True)
        self.reserve()
        self.reserve()
        self.connect()
        self.unreserve()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_when_it_cannot_be_closed_the_volume_is_not_given_back(self):
        self.reserve()
        self.connect()
        self.manager_api.close_connections.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.unreserve)
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_a_connect_that_never_came_to_be_is_no_use_of_the_volume(self):
        rows.add_attachment(self.volume_id, "connect_failed")
        opened = self.connect()
        self.unreserve()
        self.assertEqual([(None, (), [opened])], self.closed())


class DetachingTest(Case):
    def test_it_is_begun_and_rolled_back(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.assertEqual("detaching", self.status())
        handlers.roll_detaching(self.ctx, self.volume_id)
        self.assertEqual("in-use", self.status())


class AttachTest(Case):
    def test_all_that_was_said_is_noted(self):
        self.attach(host_name="compute-1", mode="ro")
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(
            ("legacy", "attached", case.SERVER, "compute-1", "/dev/vdb", "ro", "u"),
            tuple(row[name] for name in (
                "kind", "state", "instance_uuid", "host", "mountpoint", "mode", "user_id")),
        )  # fmt: skip

    def test_an_administrators_attachment_belongs_to_the_volumes_project(self):
        self.ctx = asking.context(*asking.ADMIN, project=asking.OTHER_PROJECT)
        self.attach()
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(rows.PROJECT, row["project_id"])

    def test_a_server_is_the_same_however_its_id_is_written(self):
        server = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        for written in (server.upper(), server.replace("-", ""), server):
            self.attach(instance_uuid=written)
        (row,) = rows.attachments(self.volume_id)
        self.assertEqual(server, row["instance_uuid"])

    def test_a_volume_in_maintenance_stays_as_it_is(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.attach()


class WhoTest(Case):
    def test_readers_may_do_none_of_it(self):
        self.ctx = asking.context("reader")
        for call, rule in (
            (self.reserve, "volume_actions:reserve"),
            (self.unreserve, "volume_actions:unreserve"),
            (self.attach, "volume_actions:attach"),
            (lambda: handlers.begin_detaching(self.ctx, self.volume_id), "begin_detaching"),
            (lambda: handlers.roll_detaching(self.ctx, self.volume_id), "roll_detaching"),
        ):
            with self.assertRaisesRegex(exception.Forbidden, rule):
                call()

    def test_the_volumes_of_others_are_not_found(self):
        self.ctx = asking.context(project=asking.OTHER_PROJECT)
        for call in (self.reserve, self.unreserve, self.attach):
            self.assertRaises(exception.VolumeNotFound, call)
