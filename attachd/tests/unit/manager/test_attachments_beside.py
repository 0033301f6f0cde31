# SPDX-License-Identifier: Apache-2.0
"""Who may be connected beside whom, and with which mode; part of manager/attachments.py."""

import unittest

from attachd import exception
from attachd.manager import attachments, detaching
from attachd.tests import backends, rows
from attachd.tests.rows import CONNECTOR, OTHER_CONNECTOR

SERVER = "11111111-1111-1111-1111-111111111111"
OTHER_SERVER = "22222222-2222-2222-2222-222222222222"
BOUND = (
    "connecting",
    "connected",
    "attached",
    "connect_unknown",
    "disconnecting",
    "disconnect_failed",
)


class BesideTest(unittest.TestCase):
    """Two attachments of one volume."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver

    def _volume(self, state, server=SERVER, **volume):
        """Return ids of a volume, of an attachment in ``state``, and of a reserved one."""
        volume_id = rows.add_volume(**volume)["id"]
        other = rows.add_attachment(volume_id, state, instance_uuid=server)["id"]
        mine = rows.add_attachment(volume_id, instance_uuid=SERVER)["id"]
        return volume_id, other, mine

    def test_alone_means_without_any_other_connection_of_an_ordinary_volume(self):
        for state in BOUND:
            volume_id, other, mine = self._volume(state)
            with self.subTest(state=state), self.assertRaises(exception.Conflict) as refused:
                attachments.attach_alone(self.backend, mine, volume_id, OTHER_CONNECTOR)
            if state not in {"connect_unknown", "disconnect_failed"}:
                self.assertIsInstance(refused.exception, exception.DuplicateConnector)
                self.assertIn(other, str(refused.exception))
            self.assertEqual("reserved", rows.attachment(mine)["state"])
        self.assertEqual([], self.driver.handed)

    def test_alone_does_not_mind_what_does_not_reach_the_volume(self):
        for state in ("reserved", "connect_failed"):
            volume_id, _other, mine = self._volume(state)
            attachments.attach_alone(self.backend, mine, volume_id, CONNECTOR)
            self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_a_server_that_moves_is_connected_from_both_hosts(self):
        for state in ("connecting", "connected", "attached", "disconnecting"):
            volume_id, _other, mine = self._volume(state)
            attachments.attach(self.backend, mine, volume_id, OTHER_CONNECTOR)
            self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_nobody_else_is_connected_beside_a_server_of_an_ordinary_volume(self):
        # Such a pair comes from a connect that failed cleanly and is tried again too late.
        for state in ("reserved", *BOUND):
            for connect in (attachments.attach, attachments.attach_alone):
                volume_id, _other, mine = self._volume(state, OTHER_SERVER)
                with self.subTest(state=state), self.assertRaises(exception.Conflict):
                    connect(self.backend, mine, volume_id, OTHER_CONNECTOR)
        self.assertEqual([], self.driver.handed)

    def test_two_attachments_without_servers_are_strangers(self):
        volume_id = rows.add_volume()["id"]
        rows.add_attachment(volume_id, "connected")
        mine = rows.add_attachment(volume_id)["id"]
        with self.assertRaises(exception.DuplicateConnector):
            attachments.attach(self.backend, mine, volume_id, OTHER_CONNECTOR)

    def test_a_multiattach_volume_connects_everybody(self):
        for state in ("reserved", "connecting", "connected", "attached", "disconnecting"):
            for connect in (attachments.attach, attachments.attach_alone):
                volume_id, _other, mine = self._volume(state, OTHER_SERVER, multiattach=True)
                connect(self.backend, mine, volume_id, OTHER_CONNECTOR)
                self.assertEqual("connected", rows.attachment(mine)["state"])

    def test_a_multiattach_volume_stays_in_use_while_another_host_connects(self):
        volume_id, _other, mine = self._volume("attached", OTHER_SERVER, multiattach=True)
        attachments.attach_alone(self.backend, mine, volume_id, OTHER_CONNECTOR)
        volume = rows.volume(volume_id)
        self.assertEqual(("in-use", "attached"), (volume["status"], volume["attach_status"]))

    def test_nobody_is_connected_while_somebody_alone_may_still_reach_the_volume(self):
        for state in ("connect_unknown", "disconnect_failed"):
            volume_id, _other, mine = self._volume(state, OTHER_SERVER, multiattach=True)
            with self.assertRaisesRegex(exception.Conflict, "error"):
                attachments.attach(self.backend, mine, volume_id, CONNECTOR)

    def test_ones_own_doubt_does_not_stand_in_the_way(self):
        volume_id = rows.add_volume()["id"]
        mine = rows.add_attachment(volume_id, "connect_unknown")["id"]
        self.assertEqual("error", rows.volume(volume_id)["status"])
        attachments.attach_alone(self.backend, mine, volume_id, CONNECTOR)
        self.assertEqual("attaching", rows.volume(volume_id)["status"])


class ModeTest(unittest.TestCase):
    """Read-only or not."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.volume_id = rows.add_volume()["id"]

    def _mode(self, reserved, connector):
        mine = rows.add_attachment(self.volume_id, mode=reserved)["id"]
        answer = attachments.attach(self.backend, mine, self.volume_id, connector)
        handed = self.backend.driver.handed[-1].export.mode
        told = answer["connection_info"]["data"]["access_mode"]
        self.assertEqual({answer["mode"]}, {handed, told, rows.attachment(mine)["mode"]})
        detaching.detach(self.backend, mine, self.volume_id)
        return answer["mode"]

    def test_without_a_word_it_is_read_and_write(self):
        self.assertEqual("rw", self._mode(None, CONNECTOR))

    def test_the_connector_may_ask_for_less(self):
        self.assertEqual("ro", self._mode(None, {**CONNECTOR, "mode": "ro"}))

    def test_what_was_reserved_wins_over_the_connector(self):
        self.assertEqual("ro", self._mode("ro", {**CONNECTOR, "mode": "rw"}))
        self.assertEqual("rw", self._mode("rw", {**CONNECTOR, "mode": "ro"}))

    def test_an_unknown_mode_of_a_connector_is_read_and_write(self):
        self.assertEqual("rw", self._mode(None, {**CONNECTOR, "mode": "shared"}))
