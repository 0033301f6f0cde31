# SPDX-License-Identifier: Apache-2.0
"""Tests of the API with requests that Schemathesis generates from its description.

The requests fit the description, or nearly do, of all operations.  No response may be a 5xx, have
an undocumented status or type, or a body of another shape.  The requests are always the same.
"""

import json
import threading
import unittest

import waitress

from attachd.api import endpoint
from attachd.api.openapi import document
from attachd.tests.fixtures import fake_agent, lifetime, processes, wsgi_api
from attachd.tests.functional import bad_input
from attachd.tests.selection import full_only

TIMEOUT = 900
"""Seconds for a run, which takes about half a minute where nothing else is done."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
HOST = "node-1"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")

KNOWN = {
    "path.volume_id": ("volume", "broken_volume", "attached_volume", "reserved_volume"),
    "path.attachment_id": ("reserved", "attached", "failed"),
    "path.type_id": ("type", "used_type", "private_type"),
    "path.qos_specs_id": ("qos", "used_qos"),
    "query.vol_type_id": ("type", "used_type"),
    "body.volume_uuid": ("volume", "attached_volume"),
}
"""What there is, of bad_input.world(): most requests are to reach more than a 404."""


@full_only("properties")
class SchemathesisTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.api = wsgi_api.use(self)
        fake_agent.report_agent(HOST)
        self.configure(bad_input.world())
        server = waitress.create_server(self.api.application, host="127.0.0.1", port=0, threads=2)
        self.url = f"http://127.0.0.1:{server.effective_port}"
        serving = threading.Thread(target=server.run)
        serving.start()
        self.addCleanup(serving.join)
        self.addCleanup(server.close)

    def configure(self, world):
        known = {name: [world[key] for key in keys] for name, keys in KNOWN.items()}
        known["path.host"] = [HOST, "here@fake"]
        lines = []
        for name, values in known.items():
            lines += [f'[dictionaries."{name}"]', f"values = {json.dumps(values)}"]
        lines.append("[parameters]")
        # A long poll for events only takes time.
        lines.append('"query.wait" = 0')
        lines += [f'"{name}" = {{ dictionary = "{name}", probability = 0.9 }}' for name in known]
        lines += ["[headers]", f'X-Auth-Token = "{wsgi_api.ADMIN}"']
        # Without it, answers are in the oldest microversion, which another document describes.
        lines.append(f'OpenStack-API-Version = "{wsgi_api.LATEST}, attachd 1.0"')
        (self.folder / "schemathesis.toml").write_text("\n".join(lines) + "\n")

    def run_(self, described, *options):
        """Have it make its requests; returns its exit code and what it printed."""
        (self.folder / "openapi.json").write_text(document.to_json(described))
        ended = processes.run(
            [
                processes.script("schemathesis"),
                "run",
                "openapi.json",
                f"--url={self.url}",
                f"--checks={','.join(CHECKS)}",
                "--generation-deterministic",
                "--suppress-health-check=all",
                "--request-timeout=300",
                "--warnings=off",
                *options,
            ],
            cwd=self.folder,
            env=processes.environment(),
            timeout=TIMEOUT,
        )
        return ended.returncode, f"{ended.stdout}\n{ended.stderr}"

    def test_generated_requests_get_documented_responses(self):
        code, said = self.run_(document.describe(), "--phases=fuzzing", "--max-examples=5")
        self.assertEqual(0, code, said)

    def test_generated_attachment_requests_get_documented_responses(self):
        code, said = self.run_(
            document.describe(), "--phases=coverage", "--include-path=/v3/attachments"
        )
        self.assertEqual(0, code, said)

    def test_undocumented_response_is_detected(self):
        described = document.describe()
        path = "/v3/attachments/{attachment_id}"
        del described["paths"][path]["get"]["responses"]["404"]
        code, said = self.run_(
            described,
            "--phases=fuzzing",
            "--max-examples=30",
            f"--include-name=GET {path}",
        )
        self.assertEqual(1, code, said)
        self.assertIn("Undocumented", said)


class MethodsTest(unittest.TestCase):
    def test_unknown_method_of_a_url_returns_404(self):
        api = wsgi_api.use(self)
        declared = {(api_endpoint.method, api_endpoint.path) for api_endpoint in endpoint.load()}
        for path in sorted({path for _, path in declared}):
            url = path.replace("{", "").replace("}", "")
            for method in METHODS:
                # What looks like one of a collection may be something in it: /volumes/detail
                if (method, path) in declared or self.is_taken(method, url, declared):
                    continue
                with self.subTest(f"{method} {path}"):
                    self.assertEqual(404, api.request(method, url, token=wsgi_api.ADMIN).status)

    @staticmethod
    def is_taken(method, url, declared):
        parent = url.rpartition("/")[0]
        return any(
            item == method
            and path.startswith(f"{parent}/{{")
            and path.count("/") == url.count("/")
            for item, path in declared
        )
