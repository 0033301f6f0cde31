# SPDX-License-Identifier: Apache-2.0
"""Snapshots by the Container Storage Interface: attachd-csi before attachd-all-in-one.

The order of the calls, their retries and their duplicates are those of external-snapshotter and
external-provisioner.
"""

from concurrent import futures
import datetime
import os
import random
import threading
import time
import unittest
import uuid

import grpc

from attachd.csi import csi_pb2
from attachd.tests import concurrency, wait
from attachd.tests.fixtures import csi_driver, csi_proxy, deployments, http_client
from attachd.tests.fixtures.csi_requests import GIB, clone, new_volume, restore, sizes
from attachd.tests.functional.csi_platform import Claim, Platform
from attachd.tests.selection import full_only

NOWHERE = str(uuid.uuid4())
OTHER_DRIVER = "csi.other.example.org"


class SnapshotCase(unittest.TestCase):
    """A volume, the driver, and the all-in-one of the process.

    :cvar configuration: of the all-in-one
    """

    maxDiff = None
    configuration = ""

    def setUp(self):
        super().setUp()
        self.url = deployments.shared_all_in_one(self, self.configuration).url
        self.api = http_client.Client(f"{self.url}/v3")
        self.driver = csi_driver.shared(self, self.url)
        self.volume_id = self.create_volume()
        self.fields = self.describe(self.volume_id)

    def create_volume(self, **fields):
        """Create a volume by CSI; return its id."""
        request = new_volume(f"pvc-{uuid.uuid4()}", **fields)
        return self.driver.call("CreateVolume", **request).volume.volume_id

    def describe(self, volume_id):
        """Return the fields of a request for a new snapshot of a volume."""
        return {"name": f"snapshot-{uuid.uuid4()}", "source_volume_id": volume_id}

    def take(self, **fields):
        """Take a snapshot by two calls."""
        request = {**self.fields, **fields}
        first, again = (self.driver.call("CreateSnapshot", **request).snapshot for _ in range(2))
        self.assertEqual(first, again)
        return first

    def take_by_api(self, **fields):
        """Take a snapshot as a user does; return its id."""
        body = {"snapshot": {"volume_id": self.volume_id, **fields}}
        made = self.api.request_json("POST", "/snapshots", body)["snapshot"]["id"]
        wait.wait_until(lambda: self.show(made)["status"] == "available")
        return made

    def show(self, snapshot_id):
        """Return a snapshot of the API."""
        return self.api.request_json("GET", f"/snapshots/{snapshot_id}")["snapshot"]

    def snapshots(self):
        """Return the snapshots of the API."""
        return self.api.request_json("GET", "/snapshots/detail")["snapshots"]

    def listed(self, driver=None, **fields):
        """Return the ids that ListSnapshots shows."""
        answer = (driver or self.driver).call("ListSnapshots", **fields)
        return [entry.snapshot.snapshot_id for entry in answer.entries]

    def limit(self, **quotas):
        """Set quotas of the project until the test ends."""
        volume = self.api.request_json("GET", f"/volumes/{self.volume_id}")["volume"]
        path = f"/os-quota-sets/{volume['os-vol-tenant-attr:tenant_id']}"
        self.api.request_json("PUT", path, {"quota_set": quotas})
        unlimited = {"quota_set": dict.fromkeys(quotas, -1)}
        self.addCleanup(self.api.request_json, "PUT", path, unlimited)


class CreateTest(SnapshotCase):
    def test_create_snapshot_shows_source_size_and_time(self):
        before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        snapshot = self.take()
        (stored,) = self.snapshots()
        self.assertEqual(stored["id"], snapshot.snapshot_id)
        self.assertEqual((self.volume_id, GIB), (snapshot.source_volume_id, snapshot.size_bytes))
        self.assertTrue(snapshot.ready_to_use)
        self.assertEqual(self.fields["name"], stored["name"])
        created_at = snapshot.creation_time.ToDatetime(datetime.UTC)
        self.assertLessEqual(before, created_at)
        self.assertLess(created_at - before, datetime.timedelta(seconds=wait.TIMEOUT))

    def test_create_snapshot_with_name_in_unicode(self):
        self.take(name="\N{SNOWMAN}" * 42)
        self.assertEqual("\N{SNOWMAN}" * 42, self.snapshots()[0]["name"])

    def test_create_snapshot_of_same_name_and_other_source_already_exists(self):
        snapshot = self.take()
        other = self.create_volume()
        text = self.driver.fail(
            "ALREADY_EXISTS", "CreateSnapshot", **{**self.fields, "source_volume_id": other}
        )
        self.assertIn(f"snapshot of volume {self.volume_id}", text)
        self.assertEqual([snapshot.snapshot_id], [item["id"] for item in self.snapshots()])

    def test_create_snapshot_of_missing_volume_is_not_found(self):
        for source in (NOWHERE, "none", "../types"):
            fields = {**self.fields, "source_volume_id": source}
            self.driver.fail("NOT_FOUND", "CreateSnapshot", **fields)
        self.assertEqual([], self.snapshots())

    def test_create_snapshot_with_invalid_arguments_is_refused_by_field(self):
        for fields, text in (
            ({"name": ""}, "field name is required"),
            ({"source_volume_id": ""}, "field source_volume_id is required"),
            ({"name": "n" * 129}, "name has 129 bytes"),
            ({"parameters": {"force-create": "secret-value"}}, "no parameter force-create"),
        ):
            request = {**self.fields, **fields}
            found = self.driver.fail("INVALID_ARGUMENT", "CreateSnapshot", **request)
            self.assertIn(text, found)
            self.assertNotIn("secret-value", found)
        self.assertEqual([], self.snapshots())

    def test_parameters_of_kubernetes_are_ignored(self):
        given = {"csi.storage.k8s.io/volumesnapshot/name": "monday"}
        self.assertTrue(self.take(parameters=given).ready_to_use)

    def test_create_snapshot_beyond_quota_succeeds_when_quota_is_raised(self):
        self.limit(snapshots=0)
        text = self.driver.fail("RESOURCE_EXHAUSTED", "CreateSnapshot", **self.fields)
        self.assertIn("exceeded", text)
        self.assertEqual([], self.snapshots())
        self.limit(snapshots=-1)
        self.take()

    def test_create_snapshot_of_volume_in_other_work_is_aborted_and_of_error_refused(self):
        for status, code in (
            ("maintenance", "ABORTED"),
            ("error", "FAILED_PRECONDITION"),
        ):
            body = {"os-reset_status": {"status": status}}
            self.api.request_json("POST", f"/volumes/{self.volume_id}/action", body)
            self.driver.fail(code, "CreateSnapshot", **self.fields)
        self.assertEqual([], self.snapshots())

    def test_create_snapshot_by_two_controllers_at_once_creates_one(self):
        other = csi_driver.CsiDriver(self, self.url)
        for _ in range(3):
            fields = self.describe(self.volume_id)
            calls = [
                lambda driver=driver, fields=fields: driver.call("CreateSnapshot", **fields)
                for driver in (self.driver, other) * 2
            ]
            answers = concurrency.run_at_once(*calls)
            self.assertEqual(1, len({answer.snapshot.snapshot_id for answer in answers}), answers)
        self.assertEqual(3, len(self.snapshots()))

    def test_create_snapshot_after_delete_creates_another_one(self):
        created = set()
        for _ in range(3):
            created.add(self.take().snapshot_id)
            self.driver.call("DeleteSnapshot", snapshot_id=self.snapshots()[0]["id"])
        self.assertEqual((3, []), (len(created), self.snapshots()))

    def test_snapshot_that_was_reset_to_error_is_kept(self):
        snapshot = self.take()
        body = {"os-reset_status": {"status": "error"}}
        self.api.request_json("POST", f"/snapshots/{snapshot.snapshot_id}/action", body)
        again = self.take()
        self.assertEqual(snapshot.snapshot_id, again.snapshot_id)
        self.assertFalse(again.ready_to_use)

    def test_secrets_of_caller_are_neither_logged_nor_stored(self):
        driver = csi_driver.CsiDriver(self, self.url, "--mode=controller", "--debug")
        pair = b"\x0a\x01k\x12\x0ctop-secret-1"  # the entry k: top-secret-1 of a map
        secrets = b"\x1a" + bytes([len(pair)]) + pair  # as the field with the number 3
        request = csi_pb2.CreateSnapshotRequest(**self.fields).SerializeToString() + secrets
        driver.call_raw("/csi.v1.Controller/CreateSnapshot", request)
        self.assertNotIn("top-secret", f"{self.snapshots()}")
        self.assertIn("CreateSnapshot: OK", driver.process.output)
        self.assertNotIn("top-secret", driver.process.output)


class DeleteTest(SnapshotCase):
    def test_delete_snapshot_again_succeeds(self):
        snapshot = self.take()
        for _ in range(2):
            self.driver.call("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
        self.assertEqual([], self.snapshots())

    def test_delete_snapshot_that_never_was_succeeds(self):
        for snapshot_id in (NOWHERE, "none", "../types", "\N{SNOWMAN}"):
            self.driver.call("DeleteSnapshot", snapshot_id=snapshot_id)
        self.driver.fail("INVALID_ARGUMENT", "DeleteSnapshot")

    def test_delete_snapshot_of_user_is_refused(self):
        made = self.take_by_api()
        text = self.driver.fail("FAILED_PRECONDITION", "DeleteSnapshot", snapshot_id=made)
        self.assertIn("was not created by csi.attachd.org", text)
        self.assertEqual("available", self.show(made)["status"])

    def test_delete_volume_with_snapshot_is_refused_until_it_is_gone(self):
        snapshot = self.take()
        text = self.driver.fail("FAILED_PRECONDITION", "DeleteVolume", volume_id=self.volume_id)
        self.assertIn(snapshot.snapshot_id, text)
        self.driver.call("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
        self.driver.call("DeleteVolume", volume_id=self.volume_id)
        self.assertEqual([], self.api.request_json("GET", "/volumes")["volumes"])


class ListTest(SnapshotCase):
    def test_list_snapshots_in_pages_shows_each_once(self):
        created = [self.take(name=f"snapshot-{number}").snapshot_id for number in range(5)]
        self.take_by_api()  # A user's is not listed.
        for size in (0, 1, 2, 5, 9):
            listed, token = [], ""
            while True:
                page = self.driver.call("ListSnapshots", max_entries=size, starting_token=token)
                if size:
                    self.assertLessEqual(len(page.entries), size)
                listed += [entry.snapshot.snapshot_id for entry in page.entries]
                token = page.next_token
                if not token:
                    break
            self.assertEqual(created, listed, size)

    def test_list_snapshots_by_id_and_volume(self):
        first = self.take().snapshot_id
        other = self.create_volume()
        second = self.take(**self.describe(other)).snapshot_id
        self.assertEqual([first, second], self.listed())
        self.assertEqual([first], self.listed(snapshot_id=first))
        self.assertEqual([second], self.listed(source_volume_id=other))
        self.assertEqual([second], self.listed(source_volume_id=other, snapshot_id=second))
        self.assertEqual([], self.listed(source_volume_id=other, snapshot_id=first))
        for nothing in (NOWHERE, "none"):
            self.assertEqual([], self.listed(snapshot_id=nothing))
            self.assertEqual([], self.listed(source_volume_id=nothing))

    def test_list_snapshots_with_invalid_token_is_aborted(self):
        for token in ("none", NOWHERE, "1"):
            self.driver.fail("ABORTED", "ListSnapshots", starting_token=token)
        self.driver.fail("INVALID_ARGUMENT", "ListSnapshots", max_entries=-1)

    def test_get_snapshot_shows_it_or_is_not_found(self):
        snapshot = self.take()
        for _ in range(2):
            found = self.driver.call("GetSnapshot", snapshot_id=snapshot.snapshot_id)
            self.assertEqual(snapshot, found.snapshot)
        for snapshot_id in (NOWHERE, "none"):
            self.driver.fail("NOT_FOUND", "GetSnapshot", snapshot_id=snapshot_id)
        self.driver.fail("INVALID_ARGUMENT", "GetSnapshot")


class RestoreTest(SnapshotCase):
    def create(self, snapshot_id, **fields):
        """Create the volume of the test of a snapshot, by two calls."""
        request = {**self.requested, "volume_content_source": restore(snapshot_id), **fields}
        first, again = (self.driver.call("CreateVolume", **request).volume for _ in range(2))
        self.assertEqual(first, again)
        return first

    def setUp(self):
        super().setUp()
        self.requested = new_volume(f"pvc-{uuid.uuid4()}")

    def test_volume_of_snapshot_has_it_as_source(self):
        snapshot = self.take()
        volume = self.create(snapshot.snapshot_id)
        self.assertEqual(restore(snapshot.snapshot_id), volume.content_source)
        stored = self.api.request_json("GET", f"/volumes/{volume.volume_id}")["volume"]
        self.assertEqual(snapshot.snapshot_id, stored["snapshot_id"])
        # Neither depends on the other.
        self.driver.call("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
        self.assertEqual(volume, self.create(snapshot.snapshot_id))

    def test_volume_of_snapshot_is_at_least_as_large(self):
        source = self.create_volume(capacity_range=sizes(2 * GIB))
        snapshot = self.take(**self.describe(source))
        self.assertEqual(2 * GIB, snapshot.size_bytes)
        request = {**self.requested, "volume_content_source": restore(snapshot.snapshot_id)}
        small = {**request, "capacity_range": sizes(GIB, GIB)}
        self.driver.fail("OUT_OF_RANGE", "CreateVolume", **small)
        self.assertEqual(2 * GIB, self.create(snapshot.snapshot_id).capacity_bytes)

    def test_volume_of_same_name_and_other_source_already_exists(self):
        snapshot, other = self.take(), self.take(name="snapshot-2")
        self.create(snapshot.snapshot_id)
        for source in (restore(other.snapshot_id), clone(self.volume_id), None):
            request = {**self.requested, "volume_content_source": source}
            self.driver.fail("ALREADY_EXISTS", "CreateVolume", **request)

    def test_volume_of_snapshot_of_user_is_created(self):
        made = self.take_by_api()
        self.assertEqual([made], self.listed(snapshot_id=made))
        self.assertEqual(restore(made), self.create(made).content_source)

    def test_volume_of_missing_snapshot_is_not_found(self):
        for snapshot_id in (NOWHERE, "none"):
            request = {**self.requested, "volume_content_source": restore(snapshot_id)}
            self.driver.fail("NOT_FOUND", "CreateVolume", **request)


class TwoClustersTest(SnapshotCase):
    """The driver of another cluster has another name, and the same project."""

    def setUp(self):
        super().setUp()
        self.other = csi_driver.CsiDriver(
            self, self.url, "--mode=controller", f"--driver-name={OTHER_DRIVER}"
        )

    def test_snapshots_of_same_name_are_two(self):
        own = self.take().snapshot_id
        others = self.other.call("CreateSnapshot", **self.fields).snapshot.snapshot_id
        self.assertNotEqual(own, others)
        self.assertEqual([own], self.listed())
        self.assertEqual([others], self.listed(self.other))
        by_volume = {"source_volume_id": self.volume_id}
        self.assertEqual([others], self.listed(self.other, **by_volume))

    def test_snapshot_of_other_cluster_does_not_exist_and_is_not_deleted(self):
        own = self.take().snapshot_id
        self.assertEqual([], self.listed(self.other, snapshot_id=own))
        self.other.fail("NOT_FOUND", "GetSnapshot", snapshot_id=own)
        request = new_volume("pvc-1", volume_content_source=restore(own))
        self.other.fail("NOT_FOUND", "CreateVolume", **request)
        self.other.fail("FAILED_PRECONDITION", "DeleteSnapshot", snapshot_id=own)
        self.assertEqual("available", self.show(own)["status"])

    def test_snapshot_of_user_with_same_name_is_not_taken_over(self):
        made = self.take_by_api(name=self.fields["name"])
        self.assertNotEqual(made, self.take().snapshot_id)


@full_only("containers")
class SlowStorageTest(SnapshotCase):
    """The storage is slower than callers wait."""

    # The fake driver has time for a call, an attempt to disturb it, and its end.
    configuration = """
[DEFAULT]
enabled_backends = slow

[slow]
driver = fake
fake_delay = 2
"""
    short = 1.0
    """Seconds that callers wait: less than the storage needs."""

    def aborted(self, name, /, **fields):
        """Make a call whose caller does not wait for the storage; return the message."""
        with self.assertRaises(grpc.RpcError) as caught:
            self.driver.call(name, timeout=self.short, **fields)
        self.assertIs(grpc.StatusCode.ABORTED, caught.exception.code(), caught.exception)
        return caught.exception.details()

    def test_work_goes_on_and_is_found_by_next_calls(self):
        self.assertIn("is being created", self.aborted("CreateSnapshot", **self.fields))
        (stored,) = self.snapshots()
        # One that was not taken yet is not listed, and no source.
        self.assertEqual([], self.listed())
        self.assertEqual([], self.listed(snapshot_id=stored["id"]))
        early = new_volume("pvc-1", volume_content_source=restore(stored["id"]))
        self.assertIn("the source, is creating", self.aborted("CreateVolume", **early))
        self.assertIn("is in use", self.aborted("DeleteSnapshot", snapshot_id=stored["id"]))
        self.assertEqual(stored["id"], self.take().snapshot_id)
        deleted = {"snapshot_id": stored["id"]}
        self.assertIn("is being deleted", self.aborted("DeleteSnapshot", **deleted))
        self.driver.call("DeleteSnapshot", **deleted)
        self.assertEqual([], self.snapshots())

    def test_snapshot_of_which_a_volume_is_made_is_not_deleted(self):
        snapshot = self.take()
        request = new_volume("pvc-1", volume_content_source=restore(snapshot.snapshot_id))
        self.aborted("CreateVolume", **request)
        text = self.driver.fail(
            "FAILED_PRECONDITION", "DeleteSnapshot", snapshot_id=snapshot.snapshot_id
        )
        self.assertIn("is made of it", text)
        self.driver.call("CreateVolume", **request)
        self.driver.call("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)


@full_only("containers")
class BrokenStorageTest(SnapshotCase):
    configuration = """
[DEFAULT]
enabled_backends = broken

[broken]
driver = fake
fake_fail = create_snapshot
"""

    def test_snapshots_in_error_are_deleted_and_taken_again(self):
        text = self.driver.fail("UNAVAILABLE", "CreateSnapshot", **self.fields)
        self.assertIn("could not be created and is deleted", text)
        wait.wait_until(lambda: not self.snapshots())


@full_only("containers")
class SidecarTest(SnapshotCase):
    """Calls as of sidecars, that are late, lost and repeated, by two controllers."""

    at_once, lives = 4, 16

    def setUp(self):
        super().setUp()
        self.seed = int.from_bytes(os.urandom(4))
        generator, guard = random.Random(self.seed), threading.Lock()

        def next_fault():
            with guard:
                return csi_proxy.draw(generator)

        drivers = (self.driver, csi_driver.CsiDriver(self, self.url))
        proxies = [csi_proxy.CsiProxy(self, driver.socket, next_fault) for driver in drivers]
        self.platform = Platform(proxies, self.seed)

    def live(self):
        """Take a snapshot of a volume, make a volume of it, and delete all."""
        claim = Claim("ext4")
        self.platform.provision(claim)
        snapshot_id = self.platform.take_snapshot(claim)
        copy = Claim("ext4", snapshot_id)
        self.platform.provision(copy)
        self.platform.delete_snapshot(snapshot_id)
        self.platform.delete(claim)
        self.platform.delete(copy)
        return snapshot_id

    def test_snapshots_with_lost_and_repeated_calls_leave_nothing(self):
        with futures.ThreadPoolExecutor(self.at_once) as pool:
            lives = [pool.submit(self.live) for _ in range(self.lives)]
            taken = {life.result() for life in lives}
        self.assertEqual(self.lives, len(taken), self.seed)
        self.assertEqual([], self.snapshots(), self.seed)
        volumes = self.api.request_json("GET", "/volumes")["volumes"]
        self.assertEqual([self.volume_id], [item["id"] for item in volumes], self.seed)
        self.assertTrue(self.platform.errors, self.seed)


@full_only("containers")
class KilledDriverTest(SnapshotCase):
    """The driver is killed while it takes and deletes snapshots."""

    kills = 20

    def test_calls_after_kill_find_one_snapshot(self):
        other = csi_driver.CsiDriver(self, self.url)
        for number in range(self.kills):
            fields = self.describe(self.volume_id)
            # The moments of the kills: from before the request to after it.
            moment = 0.02 * number + 0.01
            self.kill_in(other, moment, "CreateSnapshot", **fields)
            snapshot = self.driver.call("CreateSnapshot", **fields).snapshot
            self.assertTrue(snapshot.ready_to_use)
            self.assertEqual(snapshot, other.call("CreateSnapshot", **fields).snapshot)
            (stored,) = self.snapshots()
            self.assertEqual("true", stored["metadata"]["csi.created"])
            deleted = {"snapshot_id": snapshot.snapshot_id}
            self.kill_in(other, moment, "DeleteSnapshot", **deleted)
            self.driver.call("DeleteSnapshot", **deleted)
            self.assertEqual([], self.snapshots())

    def kill_in(self, driver, moment, name, /, **fields):
        """Kill the driver some seconds after the begin of a call, and start it again."""
        pending = driver.start_call(name, **fields)
        time.sleep(moment)  # The moment of the kill.
        driver.kill()
        pending.cancel()
        driver.start()
