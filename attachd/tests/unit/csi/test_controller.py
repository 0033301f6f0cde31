# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from attachd.csi import csi_pb2
from attachd.csi.controller import Controller


class ControllerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = mock.Mock()
        self.controller = Controller(self.storage)

    def test_check_asks_the_api(self):
        self.controller.check()
        self.storage.check.assert_called_once_with()

    def test_capabilities_are_answered(self):
        request = csi_pb2.ControllerGetCapabilitiesRequest()
        response = self.controller.controller_get_capabilities(request)
        self.assertIsInstance(response, csi_pb2.ControllerGetCapabilitiesResponse)
