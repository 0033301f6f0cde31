# SPDX-License-Identifier: Apache-2.0
"""What the client asks of a service, and what it makes of the answers."""

import unittest
import uuid

from openstack import exceptions
import requests

from attachd.client import service
from attachd.client.service import ReservationRefused, Volume
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.unit.client.stand import Stand


class ServiceTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.service = self.stand.service()
        self.volume = self.stand.volume(name="disk")

    def test_a_volume_is_found_by_its_id_and_by_its_name(self):
        self.assertEqual(self.volume, self.service.find(self.volume).id)
        self.assertEqual(self.volume, self.service.find("disk").id)

    def test_a_name_that_looks_like_an_id_is_a_name(self):
        named = self.stand.volume(name=str(uuid.uuid4()))
        name = db_rows.get_volume(named)["name"]
        self.assertEqual(named, self.service.find(name).id)

    def test_a_volume_that_is_not_there_is_not_found(self):
        for name in ("dis", str(uuid.uuid4())):
            self.assertRaises(exceptions.NotFoundException, self.service.find, name)

    def test_of_several_with_a_name_the_ids_are_told(self):
        other = self.stand.volume(name="disk")
        with self.assertRaises(exceptions.DuplicateResource) as caught:
            self.service.find("disk")
        self.assertIn(self.volume, f"{caught.exception}")
        self.assertIn(other, f"{caught.exception}")

    def test_what_the_guard_of_shared_connections_wants_is_there(self):
        for shared in (None, False, True):
            volume = self.stand.volume(shared_targets=shared)
            guard = self.service.find(volume).guard
            self.assertEqual({"shared_targets", "service_uuid"}, set(guard))
            self.assertIs(shared, guard["shared_targets"])
            self.assertTrue(uuid.UUID(guard["service_uuid"]))

    def test_the_same_key_is_the_same_attachment(self):
        first = self.service.reserve(self.volume, "ro", "key")
        self.assertEqual(first, self.service.reserve(self.volume, "ro", "key"))
        (row,) = db_rows.list_attachments(self.volume)
        self.assertEqual((first, "ro", None), (row["id"], row["asked_mode"], row["instance_uuid"]))

    def test_a_refusal_stays_one(self):
        self.service.reserve(self.volume, "rw", "key")
        for _ in range(2):
            with self.assertRaises(ReservationRefused) as caught:
                self.service.reserve(self.volume, "rw", "other")
            self.assertIsInstance(caught.exception.cause, exceptions.BadRequestException)

    def test_what_was_made_for_a_key_and_is_gone_is_refused(self):
        self.service.delete(self.service.reserve(self.volume, "rw", "key"))
        self.assertRaises(ReservationRefused, self.service.reserve, self.volume, "rw", "key")

    def test_a_failure_of_the_service_is_no_refusal(self):
        self.stand.log.fail("POST attachments")
        with self.assertRaises(exceptions.HttpException):
            self.service.reserve(self.volume, "rw", "key")

    def test_a_caller_who_is_not_known_is_not_refused_for_good(self):
        other = type(self.service)(self.stand.connection("not: a token"))
        with self.assertRaises(exceptions.SDKException):
            other.reserve(self.volume, "rw", "key")

    def test_a_refusal_is_final_if_each_repetition_is_refused(self):
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

    def test_an_attachment_is_told_with_its_host(self):
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

    def test_where_an_attachment_does_not_tell_its_host_the_volume_may(self):
        made = self.service.reserve(self.volume, "rw", "key")
        (found,) = self.service.attachments(Volume(self.volume, hosts={made: "there"}))
        self.assertEqual("there", found.host)

    def test_administrators_see_hosts_of_volumes(self):
        made = self.service.reserve(self.volume, "rw", "key")
        self.service.connect(made, {"host": "somewhere"})
        self.service.complete(made)
        other = type(self.service)(self.stand.connection(wsgi_api.ADMIN))
        self.assertEqual({made: "somewhere"}, other.find(self.volume).hosts)

    def test_what_is_gone_is_deleted_already(self):
        made = self.service.reserve(self.volume, "rw", "key")
        for _ in range(2):
            self.service.delete(made)
        self.assertIsNone(self.service.attachment(made))
