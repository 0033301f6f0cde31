# SPDX-License-Identifier: Apache-2.0
"""What making an attachment does, with objects and manager replaced."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import creation, policy
from attachd.conf import CONF
from attachd.tests.unit.api.attachments import test_view

ID = "11111111-2222-3333-4444-555555555555"
CONNECTOR = {"host": "h"}
CONNECTED = {"connection_info": test_view.ISCSI, "mode": "rw"}


class CreateTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        self.calls = mock.Mock()
        for name in ("Volume", "manager_api", "reservation"):
            where = creation.connecting if name == "manager_api" else creation
            patched = self.enterContext(mock.patch.object(where, name))
            setattr(self, name, patched)
            self.calls.attach_mock(patched, name)
        self.ctx = self.calls.ctx
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())
        self.volume = self.Volume.get.return_value
        self.reservation.make.return_value = self.attachment
        self.manager_api.attach.return_value = CONNECTED

    def create(self, **fields):
        return creation.create(self.ctx, {"attachment": {"volume_uuid": ID, **fields}}, None)

    def test_without_a_connector_it_only_reserves(self):
        for connector in ({}, {"connector": {}}, {"connector": None}):
            with self.subTest(connector):
                shown = self.create(instance_uuid="i", mode="ro", **connector)["attachment"]
                self.assertEqual({}, shown["connection_info"])
                wanted = {"volume_uuid": ID, "instance_uuid": "i", "mode": "ro", **connector}
                self.reservation.make.assert_called_with(self.ctx, self.volume, wanted, None, None)
        self.manager_api.attach.assert_not_called()

    def test_it_authorises_before_it_reserves_and_reserves_before_it_connects(self):
        shown = self.create(connector=CONNECTOR)["attachment"]
        self.assertEqual("iscsi", shown["connection_info"]["driver_volume_type"])
        names = [name for name, _, _ in self.calls.mock_calls if "()" not in name]
        self.assertEqual(
            [
                "Volume.get",
                "ctx.authorize",
                "reservation.make",
                "manager_api.attach",
            ],
            names,
        )
        self.ctx.authorize.assert_called_once_with(policy.CREATE, self.volume)

    def test_a_wrong_connector_reserves_nothing(self):
        with self.assertRaises(exception.InvalidInput):
            self.create(connector={"ip": "1"})
        self.reservation.make.assert_not_called()

    def test_a_failed_connection_is_told(self):
        self.manager_api.attach.side_effect = exception.ConnectFailed(
            attachment_id="a1", reason="no"
        )
        with self.assertRaisesRegex(exception.ConnectFailed, "Attachment a1"):
            self.create(connector=CONNECTOR)

    def test_a_reservation_that_no_manager_took_up_is_given_up(self):
        self.manager_api.attach.side_effect = exception.Unavailable(reason="nobody there")
        with self.assertRaisesRegex(exception.Unavailable, "nobody there"):
            self.create(connector=CONNECTOR)
        self.reservation.give_up.assert_called_once_with(self.attachment, None)

    def test_a_reservation_without_a_connector_stays(self):
        self.create()
        self.reservation.give_up.assert_not_called()
