# SPDX-License-Identifier: Apache-2.0
"""A test case of fencing hosts, with a manager whose backend is fake."""

from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.api_case import ApiCase

VERSION = f"{wsgi_api.LATEST}, attachd 1.1"
DEAD, LIVING = "compute-1", "compute-2"
REASON = {"fence": {"reason": "no heartbeat"}}


def connector(host):
    return {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}


class FencingCase(ApiCase):
    """An administrator who fences hosts."""

    def setUp(self):
        super().setUp()
        BackendHeartbeat(self.api.backend).run_once()

    def own(self, method, path, body=None, status=200):
        """Send a request with attachd's own version; return the body, or the fault."""
        response = self.expect(status, method, path, body, token=wsgi_api.ADMIN, version=VERSION)
        return response.body if status == 200 else response.fault

    def fence(self, host=DEAD):
        return self.own("POST", f"/hosts/{host}/fence", REASON)["fence"]
