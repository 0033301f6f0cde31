# SPDX-License-Identifier: Apache-2.0
"""A test case for data of volumes that several hosts attach, behind a shared API."""

from typing import Any
import uuid

import testtools

from attachd.tests.fixtures import deployments, http_client, lifetime
from attachd.tests.fixtures.lifetime import ProcessScope
from attachd.tests.functional.test_backend_data import settings

_served: dict[Any, deployments.AllInOne] = {}


def serve_backend(test, driver, options):
    """Serve a backend to all tests of this process that name the same options.

    :param options: (who goes with the process, a folder) -> options of the driver
    :returns: its caller
    """
    if options not in _served:
        lasting = ProcessScope(test)
        folder = lifetime.temp_dir(lasting)
        own = folder / "own.conf"
        own.write_text(settings(driver, options(lasting, folder)))
        _served[options] = deployments.AllInOne(lasting, folder / "state", f"--config-file={own}")
    _served[options].show_in_failures(test)
    return http_client.Client(f"{_served[options].url}/v3")


class MultiattachCase(testtools.TestCase):
    """Volumes that several hosts have at once."""

    def create_multiattach_volume(self, **specs):
        """Make a volume of a new type that lets several hosts attach it."""
        specs = {"multiattach": "<is> True", **specs}
        wanted = {"name": f"{uuid.uuid4()}", "extra_specs": specs}
        self.api.request_json("POST", "/types", {"volume_type": wanted})
        return self.api.create_volume(volume_type=wanted["name"])

    def attach(self, volume, host, mode=None, connector=()):
        """Attach for a server of its own; return the attachment id and the connection info."""
        wanted = {"volume_uuid": volume, "instance_uuid": f"{uuid.uuid4()}"}
        wanted |= {"mode": mode} if mode else {}
        wanted["connector"] = host.connector | dict(connector)
        made = self.api.request_json("POST", "/attachments", {"attachment": wanted})["attachment"]
        self.api.request_json("POST", f"/attachments/{made['id']}/action", {"os-complete": {}})
        result = made["connection_info"]
        self.assertEqual(result["access_mode"], self.mode(made["id"]))
        return made["id"], {"driver_volume_type": result["driver_volume_type"], "data": result}

    def mode(self, attachment):
        return self.api.request_json("GET", f"/attachments/{attachment}")["attachment"][
            "attach_mode"
        ]

    def detach(self, attachment):
        self.api.request_json("DELETE", f"/attachments/{attachment}")
