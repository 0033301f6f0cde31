# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd import service
from attachd.csi import csi_pb2
from attachd.csi.identity import Identity
from attachd.platforms.calls import CallError, ErrorCode, NotReady

_SERVICE = csi_pb2.PluginCapability.Service


def _fail_with(error):
    def check():
        raise error

    return check


class IdentityTest(unittest.TestCase):
    def _probe(self, *checks):
        return Identity("name", checks).probe(csi_pb2.ProbeRequest())

    def test_info_has_name_and_version(self):
        info = Identity("csi.example.org", []).get_plugin_info(csi_pb2.GetPluginInfoRequest())
        self.assertEqual("csi.example.org", info.name)
        self.assertEqual(service.version(), info.vendor_version)

    def test_capabilities_have_controller_topology_and_online_growth(self):
        request = csi_pb2.GetPluginCapabilitiesRequest()
        capabilities = Identity("name", []).get_plugin_capabilities(request).capabilities
        services = {item.service.type for item in capabilities if item.HasField("service")}
        self.assertEqual(
            {_SERVICE.CONTROLLER_SERVICE, _SERVICE.VOLUME_ACCESSIBILITY_CONSTRAINTS}, services
        )
        (growth,) = [item for item in capabilities if item.HasField("volume_expansion")]
        online = csi_pb2.PluginCapability.VolumeExpansion.ONLINE
        self.assertEqual(online, growth.volume_expansion.type)

    def test_probe_of_working_services_is_ready(self):
        self.assertTrue(self._probe(lambda: None).ready.value)

    def test_probe_while_service_waits_is_not_ready_and_logs_reason(self):
        with self.assertLogs("attachd.csi.identity") as logs:
            response = self._probe(lambda: None, _fail_with(NotReady("API is away")))
        self.assertTrue(response.HasField("ready"))
        self.assertFalse(response.ready.value)
        self.assertIn("API is away", logs.output[0])

    def test_probe_of_wrong_configuration_fails_with_reason(self):
        failure = CallError(ErrorCode.FAILED_PRECONDITION, "wrong password")
        with self.assertRaises(CallError) as caught:
            self._probe(_fail_with(failure))
        self.assertIs(failure, caught.exception)
