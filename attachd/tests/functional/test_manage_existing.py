# SPDX-License-Identifier: Apache-2.0
"""Tests of volumes that are made of objects, and of objects that are made of volumes: conditions,
quotas, failures and repetitions.
"""

import threading
from unittest import mock

from oslo_utils import units

from attachd.manager.periodic_tasks import recovery
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.periodics import Backoff
from attachd.tests.fixtures import backends, captured_notifications, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import TIMEOUT, wait_until

HOST = backends.HOST


class Case(ApiCase):
    def setUp(self):
        super().setUp()
        self.existing = self.driver.existing

    def manage(self, name="disk", status=202, **fields):
        """Manage an object and return the response."""
        body = {"volume": {"host": HOST, "ref": {"source-name": name}, **fields}}
        return self.expect(status, "POST", "/manageable_volumes", body, token=wsgi_api.ADMIN)

    def managed(self, name="disk", **fields):
        """Manage an object and return the id of its volume, which is available."""
        volume_id = self.manage(name, **fields).body["volume"]["id"]
        self.wait_for(volume_id, "available")
        return volume_id

    def unmanage(self, volume_id, status=202):
        return self.act(volume_id, "os-unmanage", {}, status, token=wsgi_api.ADMIN)

    def status(self, volume_id):
        response = self.api.request("GET", f"/volumes/{volume_id}", token=wsgi_api.ADMIN)
        return response.body["volume"]["status"] if response.status == 200 else None

    def wait_for(self, volume_id, status):
        wait_until(lambda: self.status(volume_id) == status)

    def create(self, **wanted):
        body = {"volume": {"size": 1, **wanted}}
        volume_id = self.expect(202, "POST", "/volumes", body).body["volume"]["id"]
        self.wait_for(volume_id, "available")
        return volume_id


class ManageTest(Case):
    def test_size_is_rounded_up_to_whole_gib(self):
        for size, gib in ((1, 1), (units.Gi, 1), (units.Gi + 1, 2), (5 * units.Gi // 2, 3)):
            self.existing["disk"] = size
            volume = self.manage().body["volume"]
            self.assertEqual(gib, volume["size"])
            self.wait_for(volume["id"], "available")
            self.assertEqual(gib, self.driver.sizes()[volume["id"]])

    def test_manage_counts_in_quota_as_create(self):
        self.existing |= {"small": units.Gi, "large": 3 * units.Gi}
        quotas = {"quota_set": {"volumes": 2, "gigabytes": 4, "per_volume_gigabytes": 2}}
        path = f"/os-quota-sets/{wsgi_api.PROJECT}"
        self.expect(200, "PUT", path, quotas, token=wsgi_api.ADMIN)
        self.assertIn("per_volume", self.manage("large", 413).fault)
        quotas["quota_set"]["per_volume_gigabytes"] = -1
        self.expect(200, "PUT", path, quotas, token=wsgi_api.ADMIN)
        self.create(size=2)
        self.assertIn("gigabytes", self.manage("large", 413).fault.lower())
        volume_id = self.managed("small")
        self.assertEqual({"large": 3 * units.Gi}, self.existing)
        self.unmanage(volume_id)
        self.wait_for(volume_id, None)
        self.managed(f"volume-{volume_id}")
        self.assertIn("volumes", self.manage("large", 413).fault.lower())

    def test_failed_manage_keeps_object_and_is_deleted_without_it(self):
        for remove in (
            self.unmanage,
            lambda volume: self.expect(202, "DELETE", f"/volumes/{volume}"),
            lambda volume: self.expect(
                202, "DELETE", f"/volumes/{volume}?force=true", token=wsgi_api.ADMIN
            ),
        ):
            self.existing["disk"] = units.Gi
            with self.driver.failing("manage"):
                volume_id = self.manage().body["volume"]["id"]
                self.wait_for(volume_id, "error")
            self.assertEqual("error_managing", db_rows.get_volume(volume_id)["status"])
            path = f"/messages?resource_uuid={volume_id}"
            wait_until(lambda path=path: b"could not manage" in self.api.request("GET", path).raw)
            self.act(volume_id, "os-reset_status", {"status": "available"}, 409,
                     token=wsgi_api.ADMIN)  # fmt: skip
            self.driver.calls.clear()
            remove(volume_id)
            self.wait_for(volume_id, None)
            self.assertNotIn("delete", [call.method for call in self.driver.calls])
            self.assertEqual({"disk": units.Gi}, self.existing)

    def test_manage_during_work_shows_creating_and_is_refused_to_others(self):
        started, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def script(call):
            if call.method == "manage":
                started.set()
                go_on.wait(TIMEOUT)

        self.driver.script = script
        self.existing["disk"] = units.Gi
        thread = threading.Thread(target=self.manage)
        thread.start()
        self.assertTrue(started.wait(TIMEOUT))
        (row,) = db_rows.list_volumes()
        self.assertEqual(("managing", "creating"), (row["status"], self.status(row["id"])))
        for action in ("os-unmanage", "os-reserve"):
            self.act(row["id"], action, {}, 400, token=wsgi_api.ADMIN)
        self.expect(400, "DELETE", f"/volumes/{row['id']}")
        go_on.set()
        thread.join()
        self.wait_for(row["id"], "available")

    def test_manage_repeated_with_key_makes_one_volume(self):
        self.existing["disk"] = units.Gi
        body = {"volume": {"host": HOST, "ref": {"source-name": "disk"}}}
        answers = [
            self.api.request(
                "POST", "/manageable_volumes", body, token=wsgi_api.ADMIN, idempotency_key="k"
            )
            for _ in range(2)
        ]
        self.assertEqual([202, 202], [answer.status for answer in answers])
        self.assertEqual(answers[0].body, answers[1].body)
        self.assertEqual(1, len(db_rows.list_volumes()))

    def test_manage_whose_message_is_lost_is_done_by_recovery(self):
        self.existing["disk"] = units.Gi
        with mock.patch("attachd.manager.volumes.manage") as lost:
            volume_id = self.manage().body["volume"]["id"]
            wait_until(lambda: lost.called)  # The answer does not wait for it.
        self.assertEqual("managing", db_rows.get_volume(volume_id)["status"])
        recovery.recover_all(self.api.backend, Backoff())
        self.assertEqual("available", self.status(volume_id))
        self.assertEqual(({volume_id: 1}, {}), (self.driver.sizes(), self.existing))

    def test_type_limits_and_sharing_apply(self):
        self.existing["disk"] = 3 * units.Gi
        self.create_type("small", {"provisioning:max_vol_size": "2"})
        self.assertIn("at most 2", self.manage(status=400, volume_type="small").fault)
        self.create_type("other", {"volume_backend_name": "other"})
        self.assertIn("volume_backend_name", self.manage(status=400, volume_type="other").fault)
        self.create_type("shared", {"multiattach": "<is> True"})
        self.assertIs(True, self.manage(volume_type="shared").body["volume"]["multiattach"])

    def test_disabled_or_frozen_backend_or_backend_without_ability_is_refused(self):
        self.existing["disk"] = units.Gi
        body = {"host": HOST, "binary": "cinder-volume"}
        self.expect(200, "PUT", "/os-services/disable", body, token=wsgi_api.ADMIN)
        self.assertIn("disabled", self.manage(status=503).fault)
        self.expect(200, "PUT", "/os-services/enable", body, token=wsgi_api.ADMIN)
        self.expect(200, "PUT", "/os-services/freeze", {"host": HOST}, token=wsgi_api.ADMIN)
        self.assertIn("frozen", self.manage(status=400).fault)
        self.expect(200, "PUT", "/os-services/thaw", {"host": HOST}, token=wsgi_api.ADMIN)
        volume_id = self.create()
        self.api.backend.driver = backends.without_abilities(self.driver)
        BackendHeartbeat(self.api.backend).run_once()
        self.assertIn("manage_existing", self.manage(status=400).fault)
        self.assertIn("manage_existing", self.unmanage(volume_id, 400).fault)
        path = f"/manageable_volumes?host={HOST}"
        found = self.expect(200, "GET", path, token=wsgi_api.ADMIN).body
        self.assertEqual({"manageable-volumes": []}, found)
        self.assertEqual("available", self.status(volume_id))

    def test_notifications_are_those_of_block_storage(self):
        captured = captured_notifications.use(self)
        self.existing["disk"] = units.Gi
        volume_id = self.managed()
        self.unmanage(volume_id)
        self.wait_for(volume_id, None)
        self.assertEqual(
            [
                *("volume.manage_existing.start", "volume.manage_existing.end"),
                *("volume.unmanage.start", "volume.unmanage.end"),
            ],
            captured.event_types(),
        )


class UnmanageTest(Case):
    def test_unmanage_keeps_data_and_allows_to_manage_again(self):
        first = self.create(size=2)
        self.unmanage(first)
        self.wait_for(first, None)
        self.assertEqual(
            ({}, {f"volume-{first}": 2 * units.Gi}), (self.driver.sizes(), self.existing)
        )
        again = self.managed(f"volume-{first}")
        self.assertEqual({again: 2}, self.driver.sizes())

    def test_unmanage_of_attached_reserved_or_copied_volume_is_refused(self):
        volume_id = self.create()
        attachment = self.create_attachment(volume_id, connector={"host": "compute-1"})
        self.assertIn("attachments", self.unmanage(volume_id, 400).fault)
        self.expect(200, "DELETE", f"/attachments/{attachment}")
        self.act(volume_id, "os-reserve")
        self.assertIn("os-reserve", self.unmanage(volume_id, 400).fault)
        self.act(volume_id, "os-unreserve")
        started, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def script(call):
            if call.method == "clone":
                started.set()
                go_on.wait(TIMEOUT)

        self.driver.script = script
        self.expect(202, "POST", "/volumes", {"volume": {"source_volid": volume_id}})
        self.assertTrue(started.wait(TIMEOUT))
        self.assertIn("copied", self.unmanage(volume_id, 400).fault)
        self.assertEqual("available", self.status(volume_id))

    def test_failed_unmanage_can_be_repeated_and_is_not_deleted(self):
        volume_id = self.create()
        with self.driver.failing("unmanage"):
            self.unmanage(volume_id)
            self.wait_for(volume_id, "error_unmanaging")
        self.expect(400, "DELETE", f"/volumes/{volume_id}")
        self.unmanage(volume_id)
        self.wait_for(volume_id, None)
        self.assertEqual({f"volume-{volume_id}": units.Gi}, self.existing)

    def test_unmanage_whose_message_is_lost_is_done_by_recovery(self):
        volume_id = self.create()
        with mock.patch("attachd.manager.volumes.unmanage") as lost:
            self.unmanage(volume_id)
            wait_until(lambda: lost.called)
        self.assertEqual("unmanaging", self.status(volume_id))
        recovery.recover_all(self.api.backend, Backoff())
        self.wait_for(volume_id, None)
        self.assertEqual({f"volume-{volume_id}": units.Gi}, self.existing)
