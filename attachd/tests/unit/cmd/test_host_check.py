# SPDX-License-Identifier: Apache-2.0
"""The check of the header Host; functional/test_all_in_one sends it over HTTP."""

import json
from unittest import mock

from attachd.cmd import host_check
from attachd.tests.fixtures import conf_fixture


class HostCheckTest(conf_fixture.DefaultConfCase):
    def status(self, listening, host):
        """Return the status of the answer to a request with a header Host; None: without one."""
        application = host_check.HostCheck(self.application, host_check.own_names(listening))
        environ = {} if host is None else {"HTTP_HOST": host}
        start_response = mock.Mock()
        self.body = b"".join(application(environ, start_response))
        return start_response.call_args.args[0]

    @staticmethod
    def application(_environ, start_response):
        start_response("200 OK", [])
        return [b"{}"]

    def test_own_names_are_accepted(self):
        for listening, host in (
            ("127.0.0.1", "127.0.0.1:8776"),
            ("127.0.0.1", "localhost"),
            ("127.0.0.1", "LOCALHOST:9000"),
            ("127.1.2.3", "127.1.2.3:8776"),
            ("::1", "[::1]:8776"),
            ("Node.example.org", "node.example.org:8776"),
            ("0.0.0.0", "192.0.2.7:8776"),
            ("::", "[2001:db8::7]:8776"),
            ("127.0.0.1", None),
        ):
            with self.subTest(f"{host} at {listening}"):
                self.assertEqual("200 OK", self.status(listening, host))

    def test_other_names_are_refused(self):
        for listening, host in (
            ("127.0.0.1", "evil.example.org:8776"),
            ("127.0.0.1", "127.0.0.1.evil.example.org"),
            ("127.0.0.1", "localhost@evil.example.org"),
            ("127.0.0.1", "192.0.2.7"),
            ("0.0.0.0", "evil.example.org"),
            ("::", "evil.example.org"),
            ("127.0.0.1", "[::1"),
            ("127.0.0.1", ""),
        ):
            with self.subTest(f"{host} at {listening}"):
                self.assertEqual("400 Bad Request", self.status(listening, host))
        fault = json.loads(self.body)["badRequest"]
        self.assertIn("its own names", fault["message"])

    def test_name_of_machine_is_accepted_by_server_on_all_addresses(self):
        with mock.patch("socket.gethostname", return_value="Box"):
            self.assertEqual("200 OK", self.status("0.0.0.0", "box:8776"))
            self.assertEqual("400 Bad Request", self.status("127.0.0.1", "box:8776"))

    def test_name_of_public_endpoint_is_accepted(self):
        conf_fixture.override(self, "public_endpoint", "https://Volumes.example/v", group="api")
        self.assertEqual("200 OK", self.status("127.0.0.1", "volumes.example"))
