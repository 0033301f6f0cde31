# SPDX-License-Identifier: Apache-2.0
"""Attachments whose ids Compute keeps: nothing that it has not asked for stops its next call.

The requests are those that Nova's driver_block_device, API and manager send, each with a service
token; attachd/tests/nova has a real Nova.
"""

from unittest import mock

from attachd.api import identity
from attachd.manager.periodic_tasks import purge
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.tests.fixtures import conf_fixture, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

SERVER, OTHER = (f"{number}1111111-2222-3333-4444-555555555555" for number in "12")
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
SECOND = {"host": "compute-2", "initiator": "iqn.2026-01.org.example:compute-2"}


class ComputeCase(ApiCase):
    """A volume, and Compute with a service token."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(identity, "is_service", return_value=True))
        self.volume = self.add_volume()

    def add_volume(self, **values):
        return db_rows.add_volume(**values)["id"]

    def reserve(self, server=SERVER, volume=None):
        return self.create_attachment(volume or self.volume, instance_uuid=server)

    def connect(self, attachment, connector=CONNECTOR, status=200):
        body = {"attachment": {"connector": connector}}
        return self.expect(status, "PUT", f"/attachments/{attachment}", body)

    def complete(self, attachment):
        body = {"os-complete": attachment}
        self.expect(204, "POST", f"/attachments/{attachment}/action", body)

    def attach(self, server=SERVER, connector=CONNECTOR, volume=None):
        attachment = self.reserve(server, volume)
        self.connect(attachment, connector)
        self.complete(attachment)
        return attachment

    def begin_detaching(self, status=202, volume=None):
        return self.act(volume or self.volume, "os-begin_detaching", status=status)

    def delete(self, attachment, status=200, **options):
        return self.expect(status, "DELETE", f"/attachments/{attachment}", **options)

    def status(self, volume=None):
        return db_rows.get_volume(volume or self.volume)["status"]

    def recover(self):
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or not db_rows.list_attachments(self.volume))


class ShelvedServerTest(ComputeCase):
    """Compute completes an attachment of a shelved server, and connects it at unshelve."""

    def setUp(self):
        super().setUp()
        self.attachment = self.reserve()
        self.complete(self.attachment)
        self.assertEqual("in-use", self.status())

    def test_unshelved_server_connects_completed_reservation(self):
        answer = self.connect(self.attachment).body["attachment"]
        self.assertTrue(answer["connection_info"])
        self.assertEqual({self.attachment}, self.driver.granted())
        self.complete(self.attachment)
        self.assertEqual("in-use", self.status())

    def test_repeated_connect_returns_the_same_connection(self):
        first = self.connect(self.attachment).body["attachment"]["connection_info"]
        again = self.connect(self.attachment).body["attachment"]["connection_info"]
        self.assertEqual(first, again)
        self.complete(self.attachment)
        self.connect(self.attachment)
        self.assertIn("compute-1", self.connect(self.attachment, SECOND, 409).fault)

    def test_delete_without_connect_leaves_the_volume_available(self):
        self.delete(self.attachment)
        self.assertEqual("available", self.status())

    def test_failed_connect_stays_until_compute_asks_again(self):
        conf_fixture.override(self, "reservation_ttl", 1, "api")
        with self.driver.failing("grant", final=True):
            self.connect(self.attachment, status=500)
        self.assertIsNone(db_rows.get_attachment(self.attachment)["expires_at"])
        self.assertEqual(0, purge.expire_attachments(self.api.backend))
        self.connect(self.attachment)
        self.complete(self.attachment)
        self.assertEqual("in-use", self.status())

    def test_drained_host_gets_no_completed_reservation(self):
        self.attach(volume=self.add_volume())  # A host is known by its attachments.
        granted = self.driver.granted()
        body = {"drain": {"reason": "maintenance"}}
        extension = f"{wsgi_api.LATEST}, attachd 1.1"
        path = "/hosts/compute-1/drain"
        self.expect(200, "POST", path, body, token=wsgi_api.ADMIN, version=extension)
        self.assertIn("compute-1", self.connect(self.attachment, status=409).fault)
        self.assertEqual(granted, self.driver.granted())

    def test_limit_of_the_host_counts_completed_reservation(self):
        conf_fixture.override(self, "max_attachments_per_host", 1, "manager")
        self.attach(volume=self.add_volume())
        self.assertIn("max_attachments_per_host", self.connect(self.attachment, status=400).fault)

    def test_attachment_of_os_attach_is_not_connected(self):
        volume = self.add_volume()
        self.act(volume, "os-attach", {"instance_uuid": OTHER, "mountpoint": "/dev/vdb"})
        (row,) = db_rows.list_attachments(volume)
        self.assertIn("cannot connect", self.connect(row["id"], status=409).fault)

    def test_volume_of_another_server_is_not_connected(self):
        body = {"attachment": {"volume_uuid": self.volume, "instance_uuid": OTHER}}
        self.expect(400, "POST", "/attachments", body)


class ReservationTest(ComputeCase):
    def test_reservation_of_compute_does_not_expire(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        self.assertIsNone(db_rows.get_attachment(self.reserve())["expires_at"])

    def test_reservation_of_a_user_expires(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        with mock.patch.object(identity, "is_service", return_value=False):
            self.assertIsNotNone(db_rows.get_attachment(self.reserve())["expires_at"])


class FailedDetachTest(ComputeCase):
    """A detach fails towards Compute, which keeps its row; a manager finishes it later."""

    def setUp(self):
        super().setUp()
        self.attachment = self.attach()
        self.begin_detaching()
        with self.driver.failing("revoke"):
            self.delete(self.attachment, 500)

    def test_next_detach_succeeds_after_recovery(self):
        self.recover()
        self.assertEqual("available", self.status())
        self.begin_detaching()
        self.assertEqual("available", self.status())
        self.delete(self.attachment, 404)  # Nova takes this for success.
        self.assertEqual("available", self.status())

    def test_next_detach_succeeds_before_recovery(self):
        self.begin_detaching()
        self.delete(self.attachment)
        self.assertEqual("available", self.status())

    def test_next_detach_succeeds_beside_a_shelved_server(self):
        self.recover()
        reserved = self.reserve(OTHER)
        self.begin_detaching()
        self.delete(self.attachment, 404)
        self.connect(reserved, SECOND)
        self.complete(reserved)
        self.assertEqual("in-use", self.status())

    def test_next_detach_leaves_another_server_attached(self):
        self.recover()
        other = self.attach(OTHER, SECOND)
        self.begin_detaching()
        self.assertEqual("detaching", self.status())
        self.delete(self.attachment, 404)
        self.assertEqual("in-use", self.status())
        self.begin_detaching()
        self.delete(other)
        self.assertEqual("available", self.status())

    def test_deletion_of_an_unknown_attachment_ends_no_other_detach(self):
        self.recover()
        self.attach(OTHER, SECOND)
        self.begin_detaching()
        self.delete(OTHER, 404)
        self.delete("no-uuid", 404)
        self.assertEqual("detaching", self.status())

    def test_member_of_another_project_ends_no_detach(self):
        self.recover()
        self.attach(OTHER, SECOND)
        self.begin_detaching()
        self.delete(self.attachment, 404, token="eve:elsewhere:member")
        self.assertEqual("detaching", self.status())

    def test_user_cannot_begin_to_detach_an_available_volume(self):
        self.recover()
        with mock.patch.object(identity, "is_service", return_value=False):
            self.assertIn("must be in-use", self.begin_detaching(400).fault)

    def test_second_detach_at_the_same_time_is_refused(self):
        self.recover()
        self.attach()
        self.begin_detaching()
        self.assertIn("detaching", self.begin_detaching(400).fault)


class SharedVolumeTest(ComputeCase):
    """A failed detach of a volume that another server has as well."""

    def setUp(self):
        super().setUp()
        kind = self.create_type("shared", {"multiattach": "<is> True"})
        self.volume = self.add_volume(volume_type_id=kind, multiattach=True)
        self.attachment = self.attach()
        self.attach(OTHER, SECOND)
        self.begin_detaching()
        with self.driver.failing("revoke"):
            self.delete(self.attachment, 500)

    def test_repeated_detach_leaves_the_volume_in_use(self):
        self.begin_detaching()
        self.delete(self.attachment)
        self.assertEqual("in-use", self.status())


class DeletedWithoutComputeTest(ComputeCase):
    """An administrator ends an attachment; Compute detaches it afterwards."""

    def check_compute_detaches(self, attachment):
        wait_until(lambda: not db_rows.list_attachments(self.volume))
        self.begin_detaching()
        self.delete(attachment, 404)
        self.assertEqual("available", self.status())

    def test_detach_after_a_forced_deletion(self):
        attachment = self.attach()
        self.expect(
            200, "DELETE", f"/attachments/{attachment}?force=true",
            token=wsgi_api.ADMIN, version=f"{wsgi_api.LATEST}, attachd 1.0",
        )  # fmt: skip
        self.check_compute_detaches(attachment)

    def test_detach_after_a_fence(self):
        attachment = self.attach()
        self.expect(
            200, "POST", "/hosts/compute-1/fence", {"fence": {"reason": "dead"}},
            token=wsgi_api.ADMIN, version=f"{wsgi_api.LATEST}, attachd 1.1",
        )  # fmt: skip
        self.check_compute_detaches(attachment)
