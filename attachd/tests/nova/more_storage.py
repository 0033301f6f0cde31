# SPDX-License-Identifier: Apache-2.0
"""Further backends of the cloud, each with a manager of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attachd.tests.fixtures.processes import script
from attachd.tests.nova.case import NovaCase
from attachd.tests.nova.cloud import replace_options
from attachd.tests.wait import wait_until

_PROCESS: Final = "attachd-manager-2"
_FIRST_BACKEND: Final = "[disk]"


class StorageCase(NovaCase):
    """A test that adds a backend to those of the cloud."""

    def add_backend(
        self, driver: str, options: Mapping[str, Any], python_path: Path | None = None
    ) -> str:
        """Serve a backend until the test ends, and return the name of its volume type.

        :param driver: its name, which is that of the backend too
        :param options: of the driver
        :param python_path: a folder that has the driver, if attachd has not
        """
        path = Path(self.cloud.ETC, "attachd", f"{driver}.conf")
        path.write_text(self._configuration(driver, options), encoding="utf-8")
        self.addCleanup(path.unlink)
        variables = {} if python_path is None else {"PYTHONPATH": f"{python_path}"}
        command = (script("attachd-manager"), "--config-file", f"{path}")
        self.cloud.start(_PROCESS, *command, env=variables)
        self.addCleanup(self.cloud.kill, _PROCESS)
        wait_until(lambda: self._is_served(driver), interval=0.5)
        body = {"name": driver, "extra_specs": {"volume_backend_name": driver}}
        made = self.admin.ok("volume", "POST", "/types", {"volume_type": body})["volume_type"]
        self.addCleanup(self.admin.call, "volume", "DELETE", f"/types/{made['id']}")
        # While the manager is there: it ends what a failed test has left.
        self.addCleanup(self.cloud.clean)
        return driver

    def _configuration(self, driver: str, options: Mapping[str, Any]) -> str:
        """Return that of the first manager, with another backend."""
        path = Path(self.cloud.ETC, "attachd", "attachd.conf")
        text = path.read_text(encoding="utf-8").partition(_FIRST_BACKEND)[0]
        settings = {
            "host": "storage2",
            "state_path": f"{self.cloud.HOME}/attachd-2",
            "enabled_backends": driver,
        }
        text = replace_options(text, settings)
        lines = [f"{name} = {value}" for name, value in options.items()]
        # Those of the first manager are for the host with libvirt.
        without_agents = "[agent]\nenabled = false\n"
        return "\n".join([text, without_agents, f"[{driver}]", f"driver = {driver}", *lines, ""])

    def _is_served(self, backend: str) -> bool:
        services = self.admin.ok("volume", "GET", "/os-services")["services"]
        states = {service["host"].partition("@")[2]: service["state"] for service in services}
        return states.get(backend) == "up"
