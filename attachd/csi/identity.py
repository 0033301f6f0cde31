# SPDX-License-Identifier: Apache-2.0
"""The Identity service: name, version and capabilities of the driver, and whether it is ready."""

from collections.abc import Callable, Iterable
import logging
from typing import Final

from google.protobuf import wrappers_pb2

from attachd import service
from attachd.csi import csi_pb2
from attachd.platforms.calls import NotReady

LOG = logging.getLogger(__name__)

DRIVER: Final = "csi.attachd.org"
"""The name of the driver, which storage classes and CSIDriver objects have."""

_SERVICE = csi_pb2.PluginCapability.Service
_EXPANSION = csi_pb2.PluginCapability.VolumeExpansion


class Identity:
    """The Identity service.

    :param driver: the name of the driver
    :param checks: raise NotReady while a service cannot work, and CallError if it never will
    """

    name = "Identity"

    def __init__(self, driver: str, checks: Iterable[Callable[[], None]]) -> None:
        self._driver = driver
        self._checks = tuple(checks)

    def get_plugin_info(
        self, _request: csi_pb2.GetPluginInfoRequest
    ) -> csi_pb2.GetPluginInfoResponse:
        """Return the name and the version of the driver."""
        return csi_pb2.GetPluginInfoResponse(name=self._driver, vendor_version=service.version())

    def get_plugin_capabilities(
        self, _request: csi_pb2.GetPluginCapabilitiesRequest
    ) -> csi_pb2.GetPluginCapabilitiesResponse:
        """Return the services of the driver, here or in other processes; volumes grow online."""
        types = (_SERVICE.CONTROLLER_SERVICE, _SERVICE.VOLUME_ACCESSIBILITY_CONSTRAINTS)
        capabilities = [
            csi_pb2.PluginCapability(service=_SERVICE(type=service_type)) for service_type in types
        ]
        online = csi_pb2.PluginCapability(volume_expansion=_EXPANSION(type=_EXPANSION.ONLINE))
        return csi_pb2.GetPluginCapabilitiesResponse(capabilities=[*capabilities, online])

    def probe(self, _request: csi_pb2.ProbeRequest) -> csi_pb2.ProbeResponse:
        """Return whether all services can work.

        :raises CallError: FAILED_PRECONDITION: one never will as it is configured
        """
        try:
            for check in self._checks:
                check()
        except NotReady as error:
            LOG.warning("Not ready: %s", error)
            return csi_pb2.ProbeResponse(ready=wrappers_pb2.BoolValue(value=False))
        return csi_pb2.ProbeResponse(ready=wrappers_pb2.BoolValue(value=True))
