# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots that are made of objects, and of objects that are made of snapshots."""

import json

from attachd import exception
from attachd.db.volumes import snapshot_store
from attachd.drivers import abilities
from attachd.manager.periodic_tasks import recovery
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.periodics import Backoff
from attachd.tests.fixtures import backends, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import wait_until

HOST = backends.HOST
COLLECTION = "/manageable_snapshots"


class Case(ApiCase):
    """A volume, and one object that is a snapshot of it."""

    def setUp(self):
        super().setUp()
        self.driver.copies_snapshots = False  # The call is over when the answer comes.
        self.volume = self.create()
        self.objects = self.driver.existing_snapshots
        self.objects["then"] = self.volume

    def create(self, size=1):
        made = self.expect(202, "POST", "/volumes", {"volume": {"size": size}})
        volume = made.body["volume"]["id"]
        wait_until(lambda: db_rows.get_volume(volume)["status"] == "available")
        return volume

    def manage(self, name="then", status=202, path=COLLECTION, **fields):
        body = {"snapshot": {"volume_id": self.volume, "ref": {"source-name": name}, **fields}}
        answer = self.expect(status, "POST", path, body, token=wsgi_api.ADMIN)
        return answer.body["snapshot"] if status == 202 else answer.fault

    def managed(self, name="then", **fields):
        snapshot = self.manage(name, **fields)["id"]
        self.wait_for(snapshot, "available")
        return snapshot

    def unmanage(self, snapshot, status=202):
        path = f"/snapshots/{snapshot}/action"
        return self.expect(status, "POST", path, {"os-unmanage": {}}, token=wsgi_api.ADMIN)

    def status(self, snapshot):
        answer = self.api.request("GET", f"/snapshots/{snapshot}", token=wsgi_api.ADMIN)
        return answer.body["snapshot"]["status"] if answer.status == 200 else None

    def wait_for(self, snapshot, status):
        wait_until(lambda: self.status(snapshot) == status)

    def recover(self):
        recovery.recover_all(self.api.backend, Backoff())


class ManageTest(Case):
    def test_object_becomes_a_snapshot_and_an_object_again(self):
        for path in (COLLECTION, "/os-snapshot-manage"):
            self.objects["then"] = self.volume
            made = self.manage(path=path, name="then")
            self.assertEqual((self.volume, 1), (made["volume_id"], made["size"]))
            self.wait_for(made["id"], "available")
            self.assertEqual({}, self.objects)
            self.assertEqual({made["id"]: self.volume}, self.driver.list_snapshots())
            self.assertEqual({}, db_rows.get_snapshot(made["id"])["provider"])
            self.unmanage(made["id"])
            self.wait_for(made["id"], None)
            self.assertEqual({f"snapshot-{made['id']}": self.volume}, self.objects)
            self.assertEqual({}, self.driver.list_snapshots())
            self.objects.clear()

    def test_fields_of_the_request_are_those_of_the_snapshot(self):
        made = self.managed(name="then", description="d", metadata={"k": "v"})
        path = f"/snapshots/{made}"
        shown = self.expect(200, "GET", path).body["snapshot"]
        self.assertEqual(("d", {"k": "v"}), (shown["description"], shown["metadata"]))

    def test_object_that_does_not_fit_is_refused(self):
        other = self.create(2)
        self.objects |= {"other": other}
        listed = abilities.ManageableSnapshot
        for reference, fault in (
            ("missing", "There is no object"),
            ("other", f"It is of volume {other}"),
            (f"snapshot-{self.managed()}", "already managed"),
        ):
            self.assertIn(fault, self.manage(reference, 400))
        for item, fault in (
            (listed({"source-name": "big"}, 2**30 + 1), "It has 2 GiB"),
            (listed({"source-name": "empty"}, 0), "It has 0 GiB"),
            (listed({"source-name": "used"}, 2**30, "It is in use."), "in use"),
        ):
            self.driver.get_manageable_snapshot = lambda _volume, _reference, item=item: item
            self.assertIn(fault, self.manage(item.reference["source-name"], 400))

    def test_bad_input_is_refused_with_the_field(self):
        good = {"volume_id": self.volume, "ref": "then"}
        for body, field in (
            ({"ref": "then"}, "volume_id"),
            ({"volume_id": self.volume}, "ref"),
            ({**good, "ref": None}, "ref"),
            ({**good, "ref": 7}, "ref"),
            ({**good, "ref": {"source-name": {"a": "b"}}}, "snapshot.ref"),
            ({**good, "volume_id": "x"}, "volume_id"),
            ({**good, "colour": "red"}, "colour"),
        ):
            answer = self.expect(400, "POST", COLLECTION, {"snapshot": body}, token=wsgi_api.ADMIN)
            self.assertIn(field, answer.fault)
        self.expect(403, "POST", COLLECTION, {"snapshot": {**good, "ref": {"source-name": {}}}})
        body = {"snapshot": {**good, "ref": "then"}}
        self.expect(403, "POST", COLLECTION, body)
        self.expect(404, "POST", COLLECTION, body, token=wsgi_api.ADMIN, version="volume 3.7")
        self.expect(202, "POST", COLLECTION, body, token=wsgi_api.ADMIN)

    def test_quota_counts_the_snapshot(self):
        quotas = {"quota_set": {"snapshots": 0}}
        path = f"/os-quota-sets/{wsgi_api.PROJECT}"
        self.expect(200, "PUT", path, quotas, token=wsgi_api.ADMIN)
        self.assertIn("snapshots", self.manage(status=413))
        self.assertEqual({"then": self.volume}, self.objects)

    def test_failed_manage_keeps_the_object_also_when_the_snapshot_is_deleted(self):
        for remove in (
            self.unmanage,
            lambda snapshot: self.expect(202, "DELETE", f"/snapshots/{snapshot}"),
        ):
            with self.driver.failing("manage_snapshot"):
                snapshot = self.manage()["id"]
                self.wait_for(snapshot, "error")
            path = f"/snapshots/{snapshot}/action"
            reset = {"os-reset_status": {"status": "available"}}
            self.expect(409, "POST", path, reset, token=wsgi_api.ADMIN)
            self.driver.calls.clear()
            remove(snapshot)
            self.wait_for(snapshot, None)
            self.assertNotIn("delete_snapshot", [call.method for call in self.driver.calls])
            self.assertEqual({"then": self.volume}, self.objects)

    def test_manage_is_continued_by_recovery(self):
        with self.driver.raising(exception.BackendUnreachable("It is away."), "manage_snapshot"):
            snapshot = self.manage()["id"]
            wait_until(lambda: not db_rows.get_snapshot(snapshot)["lease_holder"])
            self.assertEqual("creating", self.status(snapshot))
        self.recover()
        self.wait_for(snapshot, "available")
        self.assertEqual({}, self.objects)

    def test_backend_without_the_ability_refuses(self):
        snapshot = self.managed()
        self.api.backend.driver = backends.without_abilities(self.driver)
        BackendHeartbeat(self.api.backend).run_once()
        self.assertIn("snapshots", self.manage(status=400))
        self.assertIn("manage_snapshots", self.unmanage(snapshot, 400).fault)
        found = self.expect(200, "GET", f"{COLLECTION}?host={HOST}", token=wsgi_api.ADMIN).body
        self.assertEqual({"manageable-snapshots": []}, found)


class UnmanageTest(Case):
    def test_snapshot_of_which_a_volume_is_made_is_not_unmanaged(self):
        snapshot = self.managed()
        pending = db_rows.add_volume("creating", snapshot_id=snapshot)["id"]
        self.assertIn(pending, self.unmanage(snapshot, 400).fault)

    def test_snapshot_in_another_status_is_not_unmanaged(self):
        for state in ("creating", "deleting", "restoring", "error_deleting"):
            values = {"project_id": wsgi_api.PROJECT, "owner": None}
            snapshot = db_rows.add_snapshot(self.volume, state, **values)["id"]
            self.assertIn(state, self.unmanage(snapshot, 400).fault)

    def test_failed_unmanage_leaves_an_error_and_can_be_repeated(self):
        snapshot = self.managed()
        with self.driver.failing("unmanage_snapshot"):
            self.unmanage(snapshot)
            self.wait_for(snapshot, "error")
        self.unmanage(snapshot)
        self.wait_for(snapshot, None)

    def test_unmanage_is_continued_by_recovery_and_never_deletes(self):
        snapshot = self.managed()
        with self.driver.raising(exception.BackendUnreachable("It is away."), "unmanage_snapshot"):
            self.unmanage(snapshot)
            wait_until(lambda: not db_rows.get_snapshot(snapshot)["lease_holder"])
            self.assertEqual("unmanaging", self.status(snapshot))
        self.assertNotIn("unmanaging", snapshot_store.RESET_STATES)
        self.recover()
        self.wait_for(snapshot, None)
        self.assertEqual({f"snapshot-{snapshot}": self.volume}, self.objects)
        self.assertNotIn("delete_snapshot", [call.method for call in self.driver.calls])

    def test_volume_with_a_snapshot_that_is_unmanaged_is_not_deleted(self):
        snapshot = self.managed()
        with self.driver.raising(exception.BackendUnreachable("It is away."), "unmanage_snapshot"):
            self.unmanage(snapshot)
            for query in ("", "?cascade=true"):
                self.expect(400, "DELETE", f"/volumes/{self.volume}{query}")
            wait_until(lambda: not db_rows.get_snapshot(snapshot)["lease_holder"])


class ListTest(Case):
    def listed(self, query="", path=f"{COLLECTION}/detail", version="volume 3.71"):
        address = f"{path}?host={HOST}{query}"
        answer = self.expect(200, "GET", address, token=wsgi_api.ADMIN, version=version)
        return answer.body["manageable-snapshots"]

    def test_list_has_snapshots_and_objects(self):
        snapshot = self.managed()
        self.objects["old"] = self.volume
        old, taken = self.listed("&sort=reference:asc")
        self.assertEqual(
            {
                "reference": {"source-name": "old"},
                "size": 1,
                "safe_to_manage": True,
                "source_reference": {"source-id": self.volume},
                "reason_not_safe": None,
                "cinder_id": None,
                "extra_info": None,
            },
            old,
        )
        self.assertEqual(
            (snapshot, False, "already managed"),
            tuple(taken[key] for key in ("cinder_id", "safe_to_manage", "reason_not_safe")),
        )
        for path in (COLLECTION, "/os-snapshot-manage"):
            self.assertEqual(
                {"reference", "size", "safe_to_manage", "source_reference"},
                set(self.listed(path=path)[0]),
            )
        self.assertEqual(2, len(self.listed(path="/os-snapshot-manage/detail")))

    def test_list_comes_in_pages(self):
        self.objects |= dict.fromkeys("abc", self.volume)
        del self.objects["then"]
        names = [item["reference"]["source-name"] for item in self.listed("&limit=2")]
        self.assertEqual(["c", "b"], names)
        marker = json.dumps({"source-name": "b"})
        (last,) = self.listed(f"&marker={marker}")
        self.assertEqual({"source-name": "a"}, last["reference"])

    def test_wrong_requests_are_refused(self):
        for query, status in (
            ("", 400),
            ("?host=no@where", 404),
            (f"?host={HOST}&sort=colour", 400),
            (f"?host={HOST}&marker=x", 400),
            ("?cluster=c", 404),
        ):
            self.expect(status, "GET", f"{COLLECTION}{query}", token=wsgi_api.ADMIN)
        self.expect(403, "GET", f"{COLLECTION}?host={HOST}")
        address = f"{COLLECTION}?host={HOST}"
        self.expect(404, "GET", address, token=wsgi_api.ADMIN, version="volume 3.7")
