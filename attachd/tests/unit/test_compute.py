# SPDX-License-Identifier: Apache-2.0
"""Requests of an audit to Compute, over HTTP."""

import json

from attachd import compute, exception
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture, fake_nova

SERVERS = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(5)]
SERVER = SERVERS[0]
VOLUME = "33333333-2222-3333-4444-555555555555"
ATTACHMENT = "44444444-2222-3333-4444-555555555555"


class ComputeCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.nova = fake_nova.FakeNova(self)
        self.set(endpoint_override=self.nova.url, auth_type="none")

    def set(self, **options):
        for name, value in options.items():
            conf_fixture.override(self, name, value, "nova")

    def reader(self):
        return compute.ComputeReader(compute.load_credentials())

    def paths(self):
        return [path.removeprefix("/v2.1") for path, _headers in self.nova.requests]

    def assert_fails(self, says, call, *, is_final=True):
        with self.assertRaisesRegex(compute.Failure, says) as caught:
            call()
        self.assertEqual(is_final, caught.exception.is_final)


class CredentialsTest(ComputeCase):
    def test_load_credentials_without_auth_type_is_refused(self):
        self.set(auth_type=None)
        with self.assertRaisesRegex(exception.ConfigurationError, "nova. has no auth_type"):
            compute.load_credentials()

    def test_load_credentials_with_unknown_auth_type_is_refused(self):
        self.set(auth_type="nonesuch")
        with self.assertRaisesRegex(exception.ConfigurationError, "nova. is invalid.*nonesuch"):
            compute.load_credentials()

    def test_load_credentials_reads_auth_section(self):
        self.set(auth_type=None, auth_section="other")
        with self.assertRaisesRegex(exception.ConfigurationError, "other. has no auth_type"):
            compute.load_credentials()
        CONF.set_override("auth_type", "none", group="other")
        self.addCleanup(CONF.clear_override, "auth_type", group="other")
        self.assertEqual("notused", compute.load_credentials().get_token(None))


class ListTest(ComputeCase):
    def test_list_servers_reads_all_pages(self):
        for server in SERVERS:
            self.nova.add_server(server)
        self.nova.page_size = 2
        self.assertEqual(SERVERS, [server.id for server in self.reader().list_servers()])
        self.assertEqual(
            ["/servers/detail?all_tenants=1"]
            + [f"/servers/detail?all_tenants=1&marker={SERVERS[number]}" for number in (1, 3)],
            self.paths(),
        )

    def test_list_servers_without_servers_is_empty(self):
        self.assertEqual([], list(self.reader().list_servers()))

    def test_list_servers_returns_hosts_volumes_and_work(self):
        self.nova.add_server(SERVER, task_state="migrating")
        self.nova.add_attachment(SERVER, VOLUME, ATTACHMENT)
        self.nova.add_server(SERVERS[1], host=None)
        self.nova.add_server(SERVERS[2], status="BUILD")
        busy, hostless, building = self.reader().list_servers()
        self.assertEqual({VOLUME}, busy.volume_ids)
        self.assertEqual("compute-1", busy.host)
        self.assertEqual(
            {"compute-1", "compute-1.example.org", "server", "192.0.2.7"}, busy.host_names
        )
        self.assertEqual((True, True, True), (busy.is_busy, building.is_busy, busy.is_readable))
        self.assertEqual((None, False), (hostless.host, hostless.is_busy))

    def test_list_servers_without_hosts_returns_none(self):
        body = {"id": SERVER, "status": "ACTIVE", "OS-EXT-STS:task_state": None,
                "os-extended-volumes:volumes_attached": []}  # fmt: skip
        self.nova.respond_with(200, json.dumps({"servers": [body]}).encode())
        (server,) = self.reader().list_servers()
        self.assertIsNone(server.host_names)

    def test_list_servers_with_repeated_page_fails(self):
        self.nova.add_server(SERVER)
        body = {"servers": [self.nova._server_body(SERVER)], "servers_links": [{"rel": "next"}]}
        self.nova.respond_with(200, json.dumps(body).encode())
        self.assert_fails("same page", lambda: list(self.reader().list_servers()))

    def test_list_servers_stops_at_limit_of_requests(self):
        for server in SERVERS:
            self.nova.add_server(server)
        self.nova.page_size = 2
        self.set(audit_requests=2)
        read = []
        self.assert_fails(
            r"2 requests.*\[nova\]audit_requests",
            lambda: read.extend(iter(self.reader().list_servers())),
        )
        self.assertEqual(2, len(self.nova.requests))

    def test_list_servers_stops_at_limit_of_time(self):
        reader = self.reader()
        reader._deadline -= CONF.nova.audit_timeout + 1
        self.assert_fails(r"\[nova\]audit_timeout", lambda: list(reader.list_servers()))
        self.assertEqual([], self.nova.requests)

    def test_list_attachments_returns_ids(self):
        self.nova.add_attachment(SERVER, VOLUME, ATTACHMENT)
        self.assertEqual([(ATTACHMENT, VOLUME)], self.reader().list_attachments(SERVER))
        self.assertIsNone(self.reader().list_attachments(SERVERS[1]))


class FindTest(ComputeCase):
    def find(self):
        return self.reader().find_server(SERVER)

    def test_find_server_unknown_to_compute_returns_none(self):
        self.assertIsNone(self.find())

    def test_find_server_in_down_cell_is_not_readable(self):
        self.nova.servers[SERVER] = None
        self.assertFalse(self.find().is_readable)

    def test_404_of_other_server_fails(self):
        for body in (b"", b"<html/>", b"[]", b'{"message": "no route"}'):
            with self.subTest(body):
                self.nova.respond_with(404, body)
                self.assert_fails("not one of Compute", self.find)

    def test_200_of_other_server_fails(self):
        for body in (b"", b"[]", b"{}", b'{"server": {}}', b'{"server": {"id": 1}}'):
            with self.subTest(body):
                self.nova.respond_with(200, body)
                self.assert_fails("not one of Compute", self.find)

    def test_refusals_fail_and_end_the_comparison(self):
        for status, says in ((401, "token"), (403, "role of an administrator"), (406, "2.89")):
            with self.subTest(status):
                self.nova.respond_with(status)
                self.assert_fails(says, self.find)

    def test_server_error_fails_for_this_request_only(self):
        for status in (400, 302, 500, 503):
            with self.subTest(status):
                self.nova.respond_with(status)
                self.assert_fails(f"status {status}", self.find, is_final=False)

    def test_silent_server_fails(self):
        self.nova.stop_responding()
        self.set(read_timeout=0.3)  # the server never answers
        self.assert_fails("longer to answer", self.find)

    def test_unreachable_server_fails(self):
        self.nova.close()
        self.assert_fails("cannot be asked", self.find)


class EventTest(ComputeCase):
    def send(self):
        sender = compute.EventSender(compute.load_credentials())
        sender.send(SERVER, "volume-extended", VOLUME)

    def answer(self, status, **fields):
        event = {"server_uuid": SERVER, "name": "volume-extended", "tag": VOLUME, **fields}
        self.nova.respond_to("-events", status, json.dumps({"events": [event]}).encode())

    def test_send_posts_event_with_its_tag(self):
        self.nova.add_server(SERVER)
        self.send()
        event = {"name": "volume-extended", "server_uuid": SERVER, "tag": VOLUME}
        self.assertEqual([{**event, "status": "completed"}], self.nova.events)

    def test_send_for_server_without_host_or_unknown_is_refused(self):
        with self.assertRaisesRegex(compute.EventRefused, "not know the server"):
            self.send()
        self.nova.add_server(SERVER, host=None)
        with self.assertRaisesRegex(compute.EventRefused, "on no host"):
            self.send()

    def test_send_that_older_compute_answers_with_404_is_refused(self):
        body = {"itemNotFound": {"message": "No instances found for any event", "code": 404}}
        self.nova.respond_to("-events", 404, json.dumps(body).encode())
        with self.assertRaisesRegex(compute.EventRefused, "not know the server"):
            self.send()

    def test_send_with_code_of_failed_server_is_repeated(self):
        for code in (400, 500, 503, 0):
            with self.subTest(code):
                self.answer(207, code=code)
                self.assert_fails(f"code {code}", self.send, is_final=False)

    def test_send_with_status_of_failing_compute_is_repeated(self):
        for status in (202, 300, 409, 413, 429, 500, 502, 503, 504):
            with self.subTest(status):
                self.nova.respond_to("-events", status)
                self.assert_fails(f"status {status}", self.send, is_final=False)

    def test_send_with_wrong_configuration_names_the_remedy(self):
        answers = ((400, "URL"), (401, "token"), (403, "role service, or admin"), (406, "2.51"))
        for status, says in answers:
            with self.subTest(status):
                self.nova.respond_to("-events", status)
                self.assert_fails(says, self.send)

    def test_send_to_other_server_than_compute_fails(self):
        bodies = (b"", b"<html/>", b"[]", b"{}", b'{"events": 7}', b'{"events": [7]}',
                  b'{"events": [{}]}', b'{"events": []}', b"\xff\xfe", b"[" * 100_000,
                  b'{"events": [{"server_uuid": "x", "code": 200}]}')  # fmt: skip
        for body in bodies:
            for status in (200, 207, 404):
                with self.subTest(body=body[:60], status=status):
                    self.nova.respond_to("-events", status, body)
                    self.assert_fails("not one of Compute", self.send)

    def test_send_with_code_that_is_no_number_fails(self):
        for code in (None, "200", [200], {"code": 200}):
            with self.subTest(code):
                self.answer(200, code=code)
                self.assert_fails("not one of Compute", self.send)

    def test_send_without_answer_in_time_fails(self):
        self.set(read_timeout=0.1)  # The fake never answers.
        self.nova.stop_responding()
        self.assert_fails("longer to answer", self.send)

    def test_send_to_closed_port_fails(self):
        self.nova.close()
        self.assert_fails("cannot be reached", self.send)

    def test_has_credentials_follows_options(self):
        self.assertTrue(compute.has_credentials())
        self.set(auth_type=None)
        self.assertFalse(compute.has_credentials())
        self.set(auth_section="keystone_authtoken")
        self.assertTrue(compute.has_credentials())
