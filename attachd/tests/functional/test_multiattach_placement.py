# SPDX-License-Identifier: Apache-2.0
"""Tests of the placement of multiattach and read-only volumes, and of its error messages.

A backend without the capability comes first; the reports of other backends count at once.
"""

import dataclasses
import unittest
from unittest import mock

import requests

from attachd.drivers.base import Promises
from attachd.manager.endpoint import Endpoint
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.rpc import transport
from attachd.tests.fixtures import backends, deployments, processes, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_for

SHARED = {"multiattach": "<is> True"}
ONE_WRITER = {**SHARED, "mode": "RO"}
ABLE = {"multiattach": True, "read_only_enforced": True}


class Case(ApiCase):
    def setUp(self):
        super().setUp()
        self.report(self.api.backend, {})

    def report(self, backend, capabilities):
        """Have a backend report to have these capabilities, and promise no others."""
        reported = dict(capabilities)
        kept = Promises(read_only_enforced=reported.pop("read_only_enforced", False))
        stats = dataclasses.replace(backend.driver.get_stats(), capabilities=reported)
        with (
            mock.patch.object(backend.driver, "get_stats", return_value=stats),
            mock.patch.object(backend.driver, "promises", kept),
        ):
            BackendHeartbeat(backend).run_once()

    def start_another(self, **capabilities):
        """Have another backend of this host serve and report, as its manager does."""
        backend = backends.FakeBackend("later", backends.RecordingDriver())
        backend.setup()
        server = transport.get_server(Endpoint(backend), backend.host)
        server.start(override_pool_size=2)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.report(backend, capabilities)

    def create(self, name):
        return self.api.request("POST", "/volumes", {"volume": {"size": 1, "volume_type": name}})

    def assert_refused(self, name, says):
        answer = self.create(name)
        self.assertEqual(400, answer.status, answer.raw)
        self.assertRegex(answer.fault, says)
        self.assertEqual([], self.api.request("GET", "/volumes").body["volumes"])

    def place_of(self, answer):
        """Return where a volume is, once it is made."""
        self.assertEqual(202, answer.status, answer.raw)
        path = f"/volumes/{answer.body['volume']['id']}"

        made = wait_for(
            lambda: self.api.request("GET", path, token=wsgi_api.ADMIN).body["volume"],
            lambda shown: shown["status"] == "available",
        )
        return made["os-vol-host-attr:host"]

    def pools(self, name):
        path = f"/scheduler-stats/get_pools?volume_type={name}"
        answer = self.api.request("GET", path, token=wsgi_api.ADMIN)
        return [pool["name"] for pool in answer.body["pools"]]


class LackingTest(Case):
    def test_multiattach_volume_needs_a_multiattach_backend(self):
        self.create_type("shared", SHARED)
        self.assert_refused("shared", "No backend can serve .* asks for: multiattach")
        self.assertEqual([], self.pools("shared"))
        self.start_another(multiattach=True)
        self.assertEqual(["here@later#later"], self.pools("shared"))
        for _ in range(4):
            self.assertEqual("here@later#later", self.place_of(self.create("shared")))

    def test_read_only_type_needs_a_backend_that_enforces_it(self):
        self.create_type("archive", {"mode": "RO"})
        self.assert_refused("archive", "asks for: read_only_enforced")
        self.start_another(read_only_enforced=True)
        self.assertEqual(["here@later#later"], self.pools("archive"))
        self.assertEqual("here@later#later", self.place_of(self.create("archive")))

    def test_no_valid_backend_names_all_missing_capabilities(self):
        self.create_type("cluster", {**ONE_WRITER, "max_attachments": "3"})
        self.assert_refused("cluster", "asks for: multiattach, read_only_enforced")
        self.start_another(multiattach=True)
        self.assert_refused("cluster", "asks for: read_only_enforced")

    def test_no_valid_backend_if_capabilities_are_on_different_backends(self):
        self.create_type("cluster", ONE_WRITER)
        self.report(self.api.backend, {"multiattach": True})
        self.start_another(read_only_enforced=True)
        self.assert_refused("cluster", "all of multiattach, read_only_enforced together")

    def test_backend_that_lost_a_capability_gets_no_new_volume(self):
        self.create_type("shared", SHARED)
        self.report(self.api.backend, ABLE)
        self.assertEqual("here@fake#fake", self.place_of(self.create("shared")))
        self.report(self.api.backend, {"multiattach": False})
        answer = self.create("shared")
        self.assertEqual(400, answer.status)
        self.assertIn("multiattach", answer.fault)

    def test_volume_without_requirements_is_placed_anywhere(self):
        for name, specs in (
            ("single", {"multiattach": "<is> False"}),
            ("written", {"mode": "RW", "max_attachments": "1", "max_attachments_per_host": "1"}),
        ):
            self.create_type(name, specs)
            self.assertEqual(["here@fake#fake"], self.pools(name))
            self.assertEqual("here@fake#fake", self.place_of(self.create(name)))

    def test_retype_to_type_that_the_backend_cannot_serve_is_refused(self):
        self.create_type("shared", SHARED)
        self.start_another(**ABLE)
        self.create_type("here", {"volume_backend_name": "fake"})
        volume = self.create("here")
        self.place_of(volume)
        path = f"/volumes/{volume.body['volume']['id']}"
        for policy in ("never", "on-demand"):
            wanted = {"os-retype": {"new_type": "shared", "migration_policy": policy}}
            answer = self.api.request("POST", f"{path}/action", wanted)
            self.assertEqual(400, answer.status)
            self.assertRegex(answer.fault, "does not migrate .* asks for: multiattach")
        found = self.api.request("GET", path).body["volume"]
        self.assertEqual(("here", False), (found["volume_type"], found["multiattach"]))


_LATER = """\
[DEFAULT]
host = later
enabled_backends = shelf
[shelf]
driver = fake
"""


@full_only("deployments")
class ProcessesTest(unittest.TestCase):
    """A manager that starts while an API finds no valid backend."""

    def test_create_volume_after_capability_report_succeeds(self):
        deployment = deployments.Deployment(self, "mariadb", workers=1)  # files, without devices
        deployment.start_manager()
        deployment.start_gunicorn()
        deployment.wait_until_served()
        self.url = f"{deployment.url}/v3"
        body = {"volume_type": {"name": "cluster", "extra_specs": ONE_WRITER}}
        requests.post(f"{self.url}/types", json=body, timeout=TIMEOUT).raise_for_status()
        self.body = {"volume": {"size": 1, "volume_type": "cluster"}}
        refused = self.create()
        self.assertEqual(400, refused.status_code)
        self.assertIn("asks for: read_only_enforced", refused.text)
        later = deployment.folder / "later.conf"
        later.write_text(_LATER)
        second = processes.Process(
            self,
            processes.script("attachd-manager"),
            f"--config-file={deployment.folder / 'attachd.conf'}",
            f"--config-file={later}",
        )
        second.wait_for("Serving backend")
        answer = wait_for(self.create, lambda answer: answer.status_code != 400)
        self.assertEqual(202, answer.status_code, answer.text)
        path = f"{self.url}/volumes/{answer.json()['volume']['id']}"
        found = wait_for(lambda: self.volume(path), lambda shown: shown["status"] != "creating")
        self.assertEqual(
            ("available", "later@shelf#shelf"), (found["status"], found["os-vol-host-attr:host"])
        )

    def create(self):
        return requests.post(f"{self.url}/volumes", json=self.body, timeout=TIMEOUT)

    def volume(self, path):
        return requests.get(path, timeout=TIMEOUT).json()["volume"]
