# SPDX-License-Identifier: Apache-2.0
"""The base class of tests with a real Nova: users, servers, volumes, and what has to agree."""

from pathlib import Path
from typing import Any
import unittest

from attachd.tests.nova import cloud
from attachd.tests.wait import wait_until

COMPUTES = ("compute1", "compute2")


class NovaCase(unittest.TestCase):
    """A test with the cloud of this process, which has no server and no volume before it.

    :ivar cloud: the module cloud.py of the scripts
    :ivar admin: API calls of an administrator, as of cloud.Api
    """

    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        self.cloud = cloud.shared(self)
        self.admin = self.cloud.ADMIN
        self.cloud.MINE.clear()
        self.addCleanup(self.cloud.clean)

    def assert_agreed(self, **expected: Any) -> None:
        """Check that Nova, attachd, exports and audit say the same; as of cloud.agree()."""
        self.cloud.agree(self.id(), **expected)

    def server_with_volume(self, host: str = COMPUTES[0], vtype: str = "disk") -> tuple[str, str]:
        """Return a new server and a new volume that is attached to it."""
        server = self.admin.server(host=host)
        volume = self.admin.volume(vtype)
        self.admin.add(server, volume)
        return server, volume

    def attachments(self, volume: str) -> list[Any]:
        """Return the attachments of a volume."""
        return [row for row in self.admin.attachments() if row["volume_id"] == volume]

    def wait_until_status(self, volume: str, status: str) -> None:
        """Wait until a volume has this status; it may be in error before."""
        wait_until(lambda: self.admin.get_volume(volume)["status"] == status, interval=0.5)

    def states(self, volume: str) -> list[str]:
        """Return the statuses of the attachments of a volume, sorted."""
        return sorted(row["status"] for row in self.attachments(volume))

    def host_of(self, server: str) -> str:
        """Return the compute service of a server."""
        return str(self.admin.get_server(server)["OS-EXT-SRV-ATTR:host"])

    def action_result(self, server: str, action: str) -> str | None:
        """Return the result of the last action of this name; None: it has none yet."""
        path = f"/servers/{server}/os-instance-actions"
        for item in self.admin.ok("compute", "GET", path)["instanceActions"]:
            if item["action"] == action:
                body = self.admin.ok("compute", "GET", f"{path}/{item['request_id']}")
                results = {event["result"] for event in body["instanceAction"]["events"]}
                if "Error" in results:
                    return "Error"
                return "Success" if results == {"Success"} else None
        return None

    def extend(self, volume: str, size_gib: int) -> None:
        """Ask for a volume to be extended."""
        body = {"os-extend": {"new_size": size_gib}}
        self.admin.ok("volume", "POST", f"/volumes/{volume}/action", body)

    def hold(self, host: str, step: str) -> None:
        """Let the driver of a host wait in this step until :meth:`release`."""
        self.cloud.hold(host, step)
        self.addCleanup(self.release, host, step)

    def release(self, host: str, step: str) -> None:
        """Let the driver of a host go on."""
        self.cloud.hold(host, step, False)

    def kill_compute(self, host: str) -> None:
        """Kill nova-compute on a host, and wait until Nova counts it as down."""
        self.cloud.kill(host)
        self.addCleanup(self.restart_compute, host)
        self.cloud.compute_is(host, "down")

    def restart_compute(self, host: str) -> None:
        """Start nova-compute on a host, unless it runs."""
        if not self._is_running(host):
            self.cloud.start_compute(host)

    def fence(self, host: str) -> Any:
        """Fence a host until the end of the test, and return the fence."""
        answer = self._control(host, "fence", {"reason": "no power"})
        self.addCleanup(self._control, host, "unfence", None)
        return answer["fence"]

    def _control(self, host: str, action: str, body: Any) -> Any:
        version = f"{self.cloud.VOLUME_MV}, attachd 1.1"
        path = f"/hosts/{host}/{action}"
        return self.admin.ok("volume", "POST", path, {action: body}, mv=version)

    def stop_storage(self) -> None:
        """Kill the iSCSI target of the type ``iscsi``."""
        self.cloud.kill("tgtd")
        self.addCleanup(self.start_storage)

    def start_storage(self) -> None:
        """Start the iSCSI target again, and wait for its backend, unless it runs."""
        if not self._is_running("tgtd"):
            self.cloud.start_tgtd()
            wait_until(lambda: self._backend_state("iscsi") == "up", interval=0.5)

    def _is_running(self, name: str) -> bool:
        """Return whether a process of the cloud runs; one that was killed may be a zombie."""
        try:
            stat = Path(f"/proc/{self.cloud.pid(name)}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}

    def _backend_state(self, name: str) -> str:
        services = self.admin.ok("volume", "GET", "/os-services")["services"]
        return str(next(it["state"] for it in services if it["host"].endswith(f"@{name}")))
