# SPDX-License-Identifier: Apache-2.0
"""Tests of the reservation of a volume, as users see it."""

from attachd.drivers import abilities
from attachd.tests.fixtures import backends, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase

VERSION = f"{wsgi_api.LATEST}, attachd 1.0"
KIND = "Exclusive Access, Registrants Only"


class ReservationTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]
        self.attachments = [self.attach(host) for host in ("compute-1", "compute-2")]

    def attach(self, host):
        connector = {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}
        body = {"attachment": {"volume_uuid": self.volume_id, "connector": connector}}
        return self.expect(200, "POST", "/attachments", body).body["attachment"]["id"]

    def reservation(self, status=200, **options):
        path = f"/volumes/{self.volume_id}/persistent_reservation"
        return self.expect(status, "GET", path, version=VERSION, **options)

    def reserve(self, holder):
        self.driver.persistent_reservations[self.volume_id] = abilities.PersistentReservation(
            holder, KIND
        )

    def test_volume_without_reservation_shows_null(self):
        self.assertEqual({"persistent_reservation": None}, self.reservation().body)

    def test_reservation_names_attachment_of_its_holder(self):
        self.reserve(self.attachments[1])
        for token, holder in ((wsgi_api.ADMIN, self.attachments[1]), (wsgi_api.MEMBER, None)):
            self.assertEqual(
                {"holder": holder, "type": KIND, "attachment_ids": [self.attachments[1]]},
                self.reservation(token=token).body["persistent_reservation"],
            )

    def test_reservation_of_unknown_host_names_no_attachment(self):
        self.reserve("another")
        self.assertEqual([], self.reservation().body["persistent_reservation"]["attachment_ids"])

    def test_backend_without_ability_is_named(self):
        self.api.backend.driver = backends.without_abilities(self.driver)
        self.assertIn("ability persistent_reservations", self.reservation(400).fault)

    def test_backend_that_does_not_answer_is_a_503(self):
        with self.driver.failing("get_persistent_reservation"):
            self.assertIn("does not answer", self.reservation(503).fault)

    def test_volume_of_other_project_is_unknown(self):
        self.reservation(404, token=wsgi_api.OTHER_PROJECT_MEMBER)
