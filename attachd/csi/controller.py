# SPDX-License-Identifier: Apache-2.0
"""The Controller service, a client of attachd's API."""

from attachd.csi import csi_pb2
from attachd.csi.storage import Storage


class Controller:
    """The Controller service.

    :param storage: the API
    """

    name = "Controller"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def check(self) -> None:
        """Check that the API answers this user.

        :raises NotReady: it does not answer
        :raises CallError: FAILED_PRECONDITION: it refuses this user, or is not there
        """
        self._storage.check()

    def controller_get_capabilities(
        self, _request: csi_pb2.ControllerGetCapabilitiesRequest
    ) -> csi_pb2.ControllerGetCapabilitiesResponse:
        """Return which calls the service has."""
        return csi_pb2.ControllerGetCapabilitiesResponse()
