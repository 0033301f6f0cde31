# SPDX-License-Identifier: Apache-2.0
"""Requests of the client to the service, and their answers."""

import unittest
import uuid

from keystoneauth1 import exceptions as transport
from openstack import exceptions
import requests

from attachd.client import service
from attachd.client.service import ReservationRefused, Volume
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.unit.client.fake_deployment import FakeDeployment


class ReadableErrorsTest(unittest.TestCase):
    """The messages of a service, without class names, statuses and URLs."""

    def message(self, error):
        with self.assertRaises(type(error)) as caught, service.readable_errors():
            raise error
        return f"{caught.exception}"

    def answer(self, status, body, kind="application/json"):
        response = requests.Response()
        response.status_code, response._content = status, body
        response.reason = "Bad Gateway"
        response.url = "http://here/v3/attachments/a"
        response.headers["Content-Type"] = kind
        response.request = requests.Request("GET", response.url).prepare()
        try:
            exceptions.raise_from_response(response)
        except exceptions.HttpException as error:
            return self.message(error)

    def test_answer_has_reason_of_service_alone(self):
        self.assertEqual("Gone.", self.answer(404, b'{"itemNotFound": {"message": "Gone."}}'))
        self.assertEqual("The service failed (502): Bad Gateway", self.answer(502, b""))

    def test_unreachable_service_is_named_with_what_to_check(self):
        for error in (
            transport.ConnectFailure(
                "Unable to establish connection to http://here/v3: HTTPConnectionPool(...): Max "
                "retries exceeded (Caused by ...: [Errno 111] Connection refused'))"
            ),
            transport.DiscoveryFailure(
                "Unable to find a version discovery document at http://here/v3, the service is "
                "unavailable or misconfigured. [Errno 111] Connection refused"
            ),
        ):
            self.assertRegex(
                self.message(error),
                r"\ANo Block Storage API answers at http://here/v3 \(Connection refused\)\. Check",
            )

    def test_other_errors_keep_their_message(self):
        self.assertEqual("refused", self.message(transport.ConnectFailure("refused")))


class ServiceTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.service = self.deployment.service()
        self.volume = self.deployment.volume(name="disk")

    def test_find_volume_by_id_or_name(self):
        self.assertEqual(self.volume, self.service.find(self.volume).id)
        self.assertEqual(self.volume, self.service.find("disk").id)

    def test_find_volume_by_name_with_form_of_id(self):
        named = self.deployment.volume(name=str(uuid.uuid4()))
        name = db_rows.get_volume(named)["name"]
        self.assertEqual(named, self.service.find(name).id)

    def test_find_unknown_volume_raises_not_found(self):
        for name in ("dis", str(uuid.uuid4())):
            self.assertRaises(exceptions.NotFoundException, self.service.find, name)

    def test_find_ambiguous_name_raises_error_with_ids(self):
        other = self.deployment.volume(name="disk")
        with self.assertRaises(exceptions.DuplicateResource) as caught:
            self.service.find("disk")
        self.assertIn(self.volume, f"{caught.exception}")
        self.assertIn(other, f"{caught.exception}")

    def test_find_returns_shared_targets_and_service_uuid(self):
        for shared in (None, False, True):
            volume = self.deployment.volume(shared_targets=shared)
            guard = self.service.find(volume).guard
            self.assertEqual({"shared_targets", "service_uuid"}, set(guard))
            self.assertIs(shared, guard["shared_targets"])
            self.assertTrue(uuid.UUID(guard["service_uuid"]))

    def test_reserve_with_same_key_returns_same_attachment(self):
        first = self.service.reserve(self.volume, "ro", "key")
        self.assertEqual(first, self.service.reserve(self.volume, "ro", "key"))
        (row,) = db_rows.list_attachments(self.volume)
        self.assertEqual((first, "ro", None), (row["id"], row["asked_mode"], row["instance_uuid"]))

    def test_reserve_again_after_refusal_is_refused(self):
        self.service.reserve(self.volume, "rw", "key")
        for _ in range(2):
            with self.assertRaises(ReservationRefused) as caught:
                self.service.reserve(self.volume, "rw", "other")
            self.assertIsInstance(caught.exception.cause, exceptions.BadRequestException)

    def test_reserve_with_key_of_deleted_attachment_is_refused(self):
        self.service.delete(self.service.reserve(self.volume, "rw", "key"))
        self.assertRaises(ReservationRefused, self.service.reserve, self.volume, "rw", "key")

    def test_reserve_with_failing_service_raises_http_error(self):
        self.deployment.log.fail("POST attachments")
        with self.assertRaises(exceptions.HttpException):
            self.service.reserve(self.volume, "rw", "key")

    def test_reserve_without_valid_token_raises_sdk_error(self):
        other = type(self.service)(self.deployment.connection("not: a token"))
        with self.assertRaises(exceptions.SDKException):
            other.reserve(self.volume, "rw", "key")

    def test_attachments_of_host_are_for_admins_and_of_all_projects(self):
        made = self.service.reserve(self.volume, "rw", "key")
        self.service.connect(made, {"host": "somewhere"})
        admin = type(self.service)(self.deployment.connection(wsgi_api.ADMIN))
        admin.check_hosts()
        self.assertEqual([made], admin.host_attachments("somewhere"))
        with self.assertRaises(exceptions.NotFoundException):
            admin.host_attachments("elsewhere")
        for call in (self.service.check_hosts, lambda: self.service.host_attachments("somewhere")):
            self.assertRaises(exceptions.ForbiddenException, call)

    def test_has_volume_by_id(self):
        self.assertTrue(self.service.has_volume(self.volume))
        self.assertFalse(self.service.has_volume(f"{uuid.uuid4()}"))

    def test_refusal_is_final_by_status_and_headers(self):
        replayed = {"Idempotent-Replayed": "true"}
        for status, headers, final in (
            (400, {}, True),
            (404, {}, True),
            (413, {}, True),
            (401, {}, False),
            (409, {}, False),
            (409, replayed, True),
            (429, {}, False),
            (500, {}, False),
            (503, {}, False),
        ):
            answer = requests.Response()
            answer.status_code = status
            answer.headers.update(headers)
            with self.assertRaises(exceptions.HttpException) as caught:
                exceptions.raise_from_response(answer)
            self.assertIs(final, service._is_final(caught.exception), (status, headers))

    def test_attachment_has_host_status_and_mode(self):
        made = self.service.reserve(self.volume, "rw", "key")
        self.assertIsNone(self.service.attachment(made).host)
        info = self.service.connect(made, {"host": "somewhere"})
        self.assertEqual(info, self.service.connect(made, {"host": "somewhere"}))
        for _ in range(2):
            self.service.complete(made)
        (found,) = self.service.attachments(Volume(self.volume))
        self.assertEqual(found, self.service.attachment(made))
        self.assertEqual(("somewhere", "attached", "rw"), (found.host, found.status, found.mode))
        self.assertEqual(made, found.connection_info["attachment_id"])

    def test_attachments_take_missing_host_from_volume(self):
        made = self.service.reserve(self.volume, "rw", "key")
        (found,) = self.service.attachments(Volume(self.volume, hosts={made: "there"}))
        self.assertEqual("there", found.host)

    def test_find_by_admin_returns_hosts_of_volume(self):
        made = self.service.reserve(self.volume, "rw", "key")
        self.service.connect(made, {"host": "somewhere"})
        self.service.complete(made)
        other = type(self.service)(self.deployment.connection(wsgi_api.ADMIN))
        self.assertEqual({made: "somewhere"}, other.find(self.volume).hosts)

    def test_delete_missing_attachment_succeeds(self):
        made = self.service.reserve(self.volume, "rw", "key")
        for _ in range(2):
            self.service.delete(made)
        self.assertIsNone(self.service.attachment(made))
