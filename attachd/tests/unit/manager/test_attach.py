# SPDX-License-Identifier: Apache-2.0
"""Connecting: the row before, the driver, the row after; see also the neighbouring files."""

import unittest
from unittest import mock

from attachd import exception
from attachd.manager import attach
from attachd.tests import backends, rows
from attachd.tests.rows import CONNECTOR


class AttachTest(unittest.TestCase):
    """One volume, one attachment."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.volume_id = rows.add_volume(provider={"lun": 7})["id"]
        self.attachment_id = rows.add_attachment(self.volume_id)["id"]

    def _attach(self, connector=CONNECTOR):
        return attach.attach(self.backend, self.attachment_id, self.volume_id, connector)

    def test_a_host_is_let_in_and_told_how_to_connect(self):
        answer = self._attach()
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self.assertEqual("rw", answer["mode"])
        self.assertEqual("fake", answer["connection_info"]["driver_volume_type"])
        self.assertEqual(self.attachment_id, answer["connection_info"]["data"]["attachment_id"])
        self.assertEqual("rw", answer["connection_info"]["data"]["access_mode"])

    def test_a_connector_that_lacks_something_is_refused_before_anything_is_begun(self):
        lacking = exception.InvalidInput(
            field="connector.wwpn", value=None, reason="It needs one."
        )
        connect = (attach.attach, attach.attach_exclusive)
        with mock.patch.object(self.driver, "check_connector", side_effect=lacking):
            for each in connect:
                with self.assertRaisesRegex(exception.InvalidInput, "wwpn"):
                    each(self.backend, self.attachment_id, self.volume_id, {"host": "h"})
        self.assertEqual("reserved", rows.attachment(self.attachment_id)["state"])
        self.assertEqual([], self.driver.handed)

    def test_the_row_keeps_what_the_host_was_told_and_who_it_is(self):
        answer = self._attach({**CONNECTOR, "mountpoint": "/dev/vdb", "x-rack": [1, None]})
        row = rows.attachment(self.attachment_id)
        self.assertEqual("connected", row["state"])
        self.assertEqual(answer["connection_info"], row["connection_info"])
        self.assertEqual(("compute-1", "/dev/vdb", "rw"), (row["host"], row["mountpoint"], "rw"))
        self.assertEqual([1, None], row["connector"]["x-rack"])
        self.assertIsNotNone(row["attached_at"])
        self.assertEqual((None, None), (row["owner"], row["error"]))
        self.assertEqual("attaching", rows.volume(self.volume_id)["status"])

    def test_before_the_driver_is_touched_the_row_says_all_that_recovery_needs(self):
        seen = []
        self.driver.script = lambda *_: seen.append(
            (rows.attachment(self.attachment_id), rows.volume(self.volume_id))
        )
        self._attach()
        row, volume = seen[0]
        self.assertEqual("connecting", row["state"])
        self.assertEqual(CONNECTOR, row["connector"])
        self.assertEqual((1, 32), (row["generation"], len(row["secret"])))
        self.assertIsNotNone(row["owner"])
        self.assertEqual(("attaching", "attaching"), (volume["status"], volume["attach_status"]))

    def test_the_driver_gets_its_notes_the_connector_the_mode_and_the_secret(self):
        self._attach()
        (handed,) = self.driver.handed
        self.assertEqual((self.volume_id, 1, {"lun": 7}), tuple(vars(handed.volume).values()))
        row = rows.attachment(self.attachment_id)
        expected = {"attachment_id": self.attachment_id, "connector": CONNECTOR, "mode": "rw"}
        self.assertEqual(expected | {"secret": row["secret"]}, vars(handed.export))

    def test_a_read_only_volume_is_not_written_to(self):
        rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, "it is read-only.*mode 'ro'"
        ):
            self._attach({**CONNECTOR, "mode": "rw"})
        self.assertEqual("reserved", rows.attachment(self.attachment_id)["state"])
        answer = self._attach()
        self.assertEqual("ro", answer["mode"])
        self.assertEqual("ro", self.driver.handed[0].export.mode)
        self.assertEqual("ro", rows.attachment(self.attachment_id)["mode"])

    def test_a_volume_that_is_no_longer_read_only_is_written_to(self):
        rows.change_volume(self.volume_id, admin_metadata={"readonly": "False"})
        self.assertEqual("rw", self._attach()["mode"])

    def test_every_attachment_has_a_secret_of_its_own(self):
        self._attach()
        other_volume = rows.add_volume()["id"]
        other = rows.add_attachment(other_volume)["id"]
        attach.attach(self.backend, other, other_volume, CONNECTOR)
        self.assertNotEqual(
            rows.attachment(self.attachment_id)["secret"], rows.attachment(other)["secret"]
        )

    def test_an_unknown_attachment_is_not_found(self):
        with self.assertRaises(exception.AttachmentNotFound):
            attach.attach(self.backend, "nothing", self.volume_id, CONNECTOR)
        with self.assertRaises(exception.VolumeNotFound):
            attach.attach(self.backend, self.attachment_id, "nothing", CONNECTOR)
        self.assertEqual([], self.driver.handed)

    def test_a_backend_that_is_down_refuses_before_the_row_moves(self):
        self.backend.error = "the cable is out"
        with self.assertRaisesRegex(exception.Unavailable, "cable") as refused:
            self._attach()
        self.assertEqual(503, refused.exception.code)
        self.assertEqual("reserved", rows.attachment(self.attachment_id)["state"])

    def test_a_volume_in_error_is_not_connected(self):
        rows.change_volume(self.volume_id, state="error", status="error")
        with self.assertRaisesRegex(exception.Conflict, "error"):
            self._attach()
        self.assertEqual([], self.driver.handed)

    def test_a_completed_attachment_without_a_connector_gets_none(self):
        rows.change_attachment(self.attachment_id, state="attached")
        with self.assertRaises(exception.InvalidTransition):
            self._attach()
        self.assertEqual([], self.driver.handed)


class RepeatTest(unittest.TestCase):
    """The same call again."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.volume_id = rows.add_volume()["id"]

    def _attach(self, attachment_id, connector=CONNECTOR):
        return attach.attach_exclusive(self.backend, attachment_id, self.volume_id, connector)

    def test_the_same_connector_gets_the_same_answer_and_nothing_moves(self):
        mine = rows.add_attachment(self.volume_id)["id"]
        first = self._attach(mine)
        before = rows.attachment(mine)
        self.assertEqual(first, self._attach(mine))
        self.assertEqual(before, rows.attachment(mine))
        self.assertEqual(["grant"], self.driver.methods)

    def test_the_answer_is_repeated_after_the_host_said_it_is_attached(self):
        info = {"driver_volume_type": "fake", "data": {"access_mode": "ro"}}
        mine = rows.add_attachment(self.volume_id, "attached", connection_info=info, mode="ro")
        self.assertEqual({"connection_info": info, "mode": "ro"}, self._attach(mine["id"]))

    def test_where_the_device_shows_up_does_not_make_another_connector(self):
        mine = rows.add_attachment(self.volume_id)["id"]
        first = self._attach(mine, {**CONNECTOR, "mountpoint": "/dev/vdb"})
        self.assertEqual(first, self._attach(mine, {**CONNECTOR, "mountpoint": "/dev/vdc"}))

    def test_another_connector_is_refused_in_every_state_that_may_reach(self):
        bound = ["connecting", "connected", "attached", "connect_unknown"]
        for state in [*bound, "disconnecting", "disconnect_failed"]:
            with self.subTest(state=state):
                self._check_held(state)

    def _check_held(self, state):
        self.volume_id = rows.add_volume()["id"]
        mine = rows.add_attachment(self.volume_id, state)["id"]
        with self.assertRaises(exception.ConnectorConflict) as refused:
            self._attach(mine, rows.OTHER_CONNECTOR)
        self.assertIn("compute-1", str(refused.exception))
        self.assertEqual(state, rows.attachment(mine)["state"])
        self.assertEqual([], self.driver.handed)

    def test_a_connect_that_failed_cleanly_may_be_repeated_by_another_host(self):
        mine = rows.add_attachment(self.volume_id, "connect_failed", secret="7" * 32)["id"]
        self._attach(mine, rows.OTHER_CONNECTOR)
        row = rows.attachment(mine)
        self.assertEqual(("connected", "compute-2"), (row["state"], row["host"]))

    def test_a_connect_in_doubt_is_repeated_with_the_same_secret(self):
        for state in ("connecting", "connect_failed", "connect_unknown"):
            self.volume_id = rows.add_volume()["id"]
            mine = rows.add_attachment(self.volume_id, state, secret="7" * 32, generation=3)
            self._attach(mine["id"])
            self.assertEqual("7" * 32, self.driver.handed[-1].export.secret, state)
            row = rows.attachment(mine["id"])
            self.assertEqual(("connected", 4), (row["state"], row["generation"]), state)

    def test_what_is_being_taken_away_is_not_given_again(self):
        for state in ("disconnecting", "disconnect_failed"):
            self.volume_id = rows.add_volume()["id"]
            mine = rows.add_attachment(self.volume_id, state)["id"]
            with self.assertRaises(exception.InvalidTransition):
                self._attach(mine)
        self.assertEqual([], self.driver.handed)
