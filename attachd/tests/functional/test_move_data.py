# SPDX-License-Identifier: Apache-2.0
"""Tests that one host at a time writes while an attachment moves, with tgtd and raw SCSI."""

import threading

from attachd.tests.fixtures import initiators, scsi
from attachd.tests.functional.test_access_modes import IscsiCase
from attachd.tests.wait import wait_until

ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
ZEROS = bytes(scsi.BLOCK)


class MoveDataTest(IscsiCase):
    def setUp(self):
        super().setUp()
        self.volume = self.api.create_volume()
        self.source, info = self.attach(self.volume, self.a)
        self.old = self.log_in(info, self.a)
        answer = self.begin()
        self.assertTrue(answer["one_writer"])
        self.destination = answer["id"]
        self.info = {"driver_volume_type": "iscsi", "data": answer["connection_info"]}
        self.new = self.log_in(self.info, self.b)

    def own(self, method, path, body=None):
        answer = self.api.request(method, path, body, headers=ATTACHD_1_1)
        self.assertEqual(200, answer.status, answer.body)
        return answer.body

    def begin(self):
        body = {
            "volume_uuid": self.volume,
            "move_from": self.source,
            "connector": self.b.connector,
        }
        return self.own("POST", "/attachments", {"attachment": body})["attachment"]

    def finish(self):
        path = f"/attachments/{self.destination}/action"
        return self.own("POST", path, {"finish_move": {}})["attachment"]

    def refused_by(self, session):
        """Return the commands that write and are refused."""
        replies = {
            name: session.send(cdb, data)
            for name, (cdb, data) in scsi.writes(7, b"x" * scsi.BLOCK).items()
        }
        return {name for name, reply in replies.items() if reply.key == scsi.DATA_PROTECT}

    def test_destination_writes_in_its_session_after_the_source_has_none(self):
        self.old.write(7, b"1" * scsi.BLOCK)
        self.assertEqual(b"1" * scsi.BLOCK, self.new.read(7))
        self.assertTrue(self.new.is_write_protected())
        self.assertLessEqual(
            {"WRITE(10)", "WRITE(16)", "WRITE SAME(16)"}, self.refused_by(self.new)
        )
        self.assertEqual(b"1" * scsi.BLOCK, self.old.read(7))
        finished = self.finish()
        self.assertEqual("rw", finished["connection_info"]["access_mode"])
        self.assertFalse(self.new.is_write_protected())
        self.new.write(7, b"2" * scsi.BLOCK)
        self.assertEqual(b"2" * scsi.BLOCK, self.new.read(7))
        self.assertRaises(initiators.Refused, self.old.write, 7, b"3" * scsi.BLOCK)
        self.assert_out({"data": {**self.info["data"]}}, self.a)
        self.detach(self.destination)
        self.assertEqual(
            [], [target for target in self.tgtd.targets() if self.volume in target.name]
        )

    def test_no_write_of_the_source_follows_the_first_one_of_the_destination(self):
        """A writer on each host, which tries again and again."""
        old = scsi.Writer(self, self.old)
        old.go_on()
        before = []

        def write():
            while not before:
                try:
                    self.new.write(5000, b"2" * scsi.BLOCK)
                except initiators.Refused:
                    continue
                before.append(self.new.read(0, 64))

        new = threading.Thread(target=write)
        new.start()
        self.finish()
        new.join()
        self.assertIsInstance(old.fail(), initiators.Refused)
        self.assertEqual(before, [self.new.read(0, 64)])

    def test_rolled_back_move_ends_the_session_of_the_destination_only(self):
        old = scsi.Writer(self, self.old)
        old.go_on()
        self.detach(self.destination)
        self.assertRaises(initiators.Refused, self.new.read, 7)
        self.assert_out(self.info, self.b)
        old.go_on()

    def test_restarted_target_refuses_the_destination_until_the_move_is_finished(self):
        self.tgtd.restart()
        wait_until(lambda: len(self.targets()) == 2)

        def log_in():
            try:
                return self.log_in(self.info, self.b)
            except initiators.Refused:
                return None

        sessions = []
        wait_until(lambda: sessions.append(log_in()) or sessions[-1])
        self.assertTrue(sessions[-1].is_write_protected())
        self.assertRaises(initiators.Refused, sessions[-1].write, 7, ZEROS)
        self.finish()
        sessions[-1].write(7, ZEROS)

    def targets(self):
        return [target for target in self.tgtd.targets() if self.volume in target.name]
