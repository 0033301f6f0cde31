# SPDX-License-Identifier: Apache-2.0
"""Tests of the volume, type and service calls of stock client libraries.

A page has two items, so that the libraries have to follow links.
"""

import unittest

from cinderclient import client as cinder
from cinderclient import exceptions
from cinderclient.contrib import noauth
from keystoneauth1 import session
from openstack import exceptions as sdk_exceptions

from attachd.tests.fixtures import deployments, requirements, sdk
from attachd.tests.wait import TIMEOUT, wait_until

PROJECT = "a" * 32
HOST = "all-in-one@file"
BINARY = "cinder-volume"


class Case(unittest.TestCase):
    """attachd-all-in-one, with pages of two items."""

    configuration = "[api]\nmax_limit = 2\n"

    def setUp(self):
        super().setUp()
        self.process = deployments.shared_all_in_one(self, self.configuration)

    def wait_for(self, claim):
        wait_until(claim, lambda: self.process.output)


class CinderClientTest(Case):
    def setUp(self):
        super().setUp()
        self.client = self.connect("3.71")

    def connect(self, version):
        plugin = noauth.CinderNoAuthPlugin("alice", PROJECT, endpoint=f"{self.process.url}/v3")
        session_ = session.Session(auth=plugin)
        self.addCleanup(session_.session.close)
        return cinder.Client(version, session=session_)

    def create(self, name, **wanted):
        volume = self.client.volumes.create(wanted.pop("size", 1), name=name, **wanted)
        self.wait_for(lambda: self.client.volumes.get(volume.id).status == "available")
        return volume

    def test_cinderclient_volume_calls_work(self):
        volumes = self.client.volumes
        first = self.create("first", metadata={"a": "1", "b": "2"}, description="d")
        self.create("second")
        self.create("third", size=2)
        found, count = volumes.list(search_opts={"with_count": True}, sort="size:asc,name")
        self.assertEqual(["second", "first", "third"], [item.name for item in found])
        self.assertEqual(3, count)
        self.assertEqual(
            [first.id],
            [volume.id for volume in volumes.list(search_opts={"metadata": {"a": "1"}})],
        )
        self.assertEqual(first.id, volumes.find(name="first").id)
        self.assertEqual(2, len(volumes.list(detailed=False, limit=2)))
        volumes.update(first, name="renamed", description=None)
        self.assertEqual("renamed", volumes.get(first.id).name)
        summary = volumes.summary(all_tenants=True)["volume-summary"]
        self.assertEqual((3, 4), (summary["total_count"], summary["total_size"]))

    def test_cinderclient_manage_calls_work_in_all_versions(self):
        disk = self.create("disk")
        for version in ("3.0", "3.8", "3.17", "3.71"):
            volumes = self.connect(version).volumes
            self.assertIs(False, volumes.list_manageable(HOST, detailed=False)[0].safe_to_manage)
            volumes.unmanage(disk)
            self.wait_for(lambda: not self.client.volumes.list())
            (listed,) = volumes.list_manageable(HOST, limit=1, sort="reference:asc")
            self.assertEqual({"source-name": f"volume-{disk.id}"}, listed.reference)
            disk = volumes.manage(HOST, listed.reference, name="disk", metadata={"v": version})
            self.wait_for(lambda: self.client.volumes.list(search_opts={"status": "available"}))
        with self.assertRaisesRegex(exceptions.ClientException, "Cluster 'any' not found"):
            volumes.manage(None, {"source-name": "disk"}, cluster="any")

    def test_cinderclient_metadata_calls_work(self):
        volumes = self.client.volumes
        volume = self.create("disk", metadata={"a": "1", "b": "2"})
        volumes.set_metadata(volume, {"c": "3"})
        volumes.delete_metadata(volume, ["a", "b"])
        self.assertEqual({"c": "3"}, volumes.get(volume.id).metadata)
        volumes.update_all_metadata(volume, {"d": "4"})
        self.assertEqual({"d": "4"}, volumes.get(volume.id).metadata)
        self.connect("3.0").volumes.delete_metadata(volume, ["d"])
        self.assertEqual({}, volumes.get(volume.id).metadata)

    def test_cinderclient_actions_and_deletion_work(self):
        volumes = self.client.volumes
        volume = self.create("disk")
        volumes.extend(volume, 3)
        self.wait_for(lambda: volumes.get(volume.id).size == 3)
        volumes.reset_state(volume, "error")
        self.assertEqual("error", volumes.get(volume.id).status)
        with self.assertRaisesRegex(exceptions.BadRequest, "currently error"):
            volumes.extend(volume, 4)
        volumes.delete(volume, cascade=True)
        self.wait_for(lambda: not volumes.list())
        with self.assertRaises(exceptions.NotFound):
            volumes.get(volume.id)
        with self.assertRaisesRegex(exceptions.BadRequest, "No backend can serve"):
            volumes.create(10**9)

    def test_cinderclient_type_calls_work(self):
        types = self.client.volume_types
        kind = types.create("shared", "d", is_public=False)
        self.assertEqual([kind.id], [item.id for item in types.list()])
        self.assertEqual([], types.list(is_public=True))
        kind.set_keys({"multiattach": "<is> True", "k": "v"})
        kind.unset_keys(["k"])
        self.assertEqual({"multiattach": "<is> True"}, types.get(kind.id).get_keys())
        types.update(kind, name="several", is_public=True)
        self.assertIs(True, types.get(kind.id).is_public)
        volume = self.create("disk", volume_type="several")
        self.assertIs(True, self.client.volumes.get(volume.id).multiattach)
        with self.assertRaises(exceptions.BadRequest):
            types.delete(kind)
        with self.assertRaises(exceptions.NotFound):
            types.default()
        for name in "abc":
            types.create(name)
        self.assertEqual(4, len(types.list()))

    def test_cinderclient_service_and_pool_calls_work(self):
        client = self.client
        (service,) = client.services.list(host="all-in-one", binary=BINARY)
        self.assertEqual((HOST, "up", "enabled"), (service.host, service.state, service.status))
        client.services.disable_log_reason(HOST, BINARY, "smoke")
        (service,) = client.services.list()
        self.assertEqual(("disabled", "smoke"), (service.status, service.disabled_reason))
        with self.assertRaisesRegex(exceptions.BadRequest, "disabled"):
            client.volumes.create(1)
        client.services.enable(HOST, BINARY)
        client.services.disable(HOST, BINARY)
        client.services.enable(HOST, BINARY)
        (pool,) = client.pools.list(detailed=True)
        self.assertEqual((f"{HOST}#file", "file"), (pool.name, pool.storage_protocol))
        self.assertEqual("file", client.capabilities.get(HOST).storage_protocol)
        absolute = {item.name: item.value for item in client.limits.get().absolute}
        self.assertEqual(0, absolute["totalVolumesUsed"])
        self.assertEqual([], list(client.limits.get().rate))
        (zone,) = client.availability_zones.list()
        self.assertEqual({"available": True}, zone.zoneState)
        filters = client.resource_filters.list("volume")
        self.assertIn("status", filters[0].filters)
        (version,) = client.services.server_api_version()
        self.assertEqual(("3.0", "3.71"), (version.min_version, version.version))


class SdkTest(Case):
    def setUp(self):
        super().setUp()
        self.storage = sdk.block_storage(self, self.process.url)

    def create(self, name, **wanted):
        volume = self.storage.create_volume(name=name, **{"size": 1, **wanted})
        self.storage.wait_for_status(volume, "available", interval=0.05, wait=TIMEOUT)
        return self.storage.get_volume(volume.id)

    def test_sdk_volume_calls_work(self):
        storage = self.storage
        disk = self.create("disk", metadata={"a": "1"})
        self.assertIs(False, disk.is_multiattach)
        self.assertIs(False, disk.is_bootable)
        self.assertEqual(f"{HOST}#file", disk.host)
        for name in ("second", "third"):
            self.create(name)
        names = {volume.name for volume in storage.volumes()}
        self.assertEqual({"disk", "second", "third"}, names)
        self.assertEqual(disk.id, storage.find_volume("disk", ignore_missing=False).id)
        self.assertEqual(["disk"], [volume.name for volume in storage.volumes(name="disk")])
        storage.set_volume_metadata(disk, b="2")
        storage.delete_volume_metadata(disk.id, ["a"])
        self.assertEqual({"b": "2"}, storage.get_volume(disk.id).metadata)
        storage.update_volume(disk, name="renamed", description="d")
        self.assertEqual("renamed", storage.get_volume(disk.id).name)
        self.assertEqual(3, storage.summary(all_projects=False).total_count)
        storage.extend_volume(disk, 2)
        self.wait_for(lambda: storage.get_volume(disk.id).size == 2)
        storage.reset_volume_status(disk, "error", None, None)
        self.assertEqual("error", storage.get_volume(disk.id).status)
        storage.delete_volume(disk, force=True)
        storage.wait_for_delete(disk, interval=0.05, wait=TIMEOUT)

    def test_sdk_manage_calls_work(self):
        requirements.require_release(self, "openstacksdk", "4.18")
        storage = self.storage
        storage.default_microversion = "3.71"  # without one the SDK lists by the version 3.0
        disk = self.create("disk")
        (listed,) = storage.manageable_volumes(host=HOST)
        self.assertIs(False, listed.safe_to_manage)
        storage.unmanage_volume(disk)
        storage.wait_for_delete(disk, interval=0.05, wait=TIMEOUT)
        (listed,) = storage.manageable_volumes(details=True, host=HOST, sort="size:asc")
        self.assertEqual((1, True), (listed.size, listed.safe_to_manage))
        self.assertEqual({"source-name": f"volume-{disk.id}"}, listed.reference)
        again = storage.manage_volume(host=HOST, ref=listed.reference, name="again")
        storage.wait_for_status(again, "available", interval=0.05, wait=TIMEOUT)
        self.assertEqual(["again"], [volume.name for volume in storage.volumes()])
        (listed,) = storage.manageable_volumes(details=True, host=HOST)
        self.assertEqual((again.id, "already managed"), (listed.cinder_id, listed.reason_not_safe))

    def test_sdk_type_calls_work(self):
        storage = self.storage
        kind = storage.create_type(name="shared", description="d", is_public=True)
        self.assertIs(True, kind.is_public)
        storage.update_type_extra_specs(kind, multiattach="<is> True", k="v")
        storage.delete_type_extra_specs(kind, ["k"])
        kind = storage.find_type("shared", ignore_missing=False)
        self.assertEqual({"multiattach": "<is> True"}, kind.extra_specs)
        storage.update_type(kind, description="other", is_public=False)
        kind = storage.get_type(kind)
        self.assertEqual(("other", False), (kind.description, kind.is_public))
        self.assertIs(True, self.create("disk", volume_type="shared").is_multiattach)
        with self.assertRaises(sdk_exceptions.BadRequestException):
            storage.delete_type(kind)

    def test_sdk_service_and_pool_calls_work(self):
        storage = self.storage
        (service,) = storage.services()
        self.assertEqual((HOST, "up"), (service.host, service.state))
        storage.disable_service(service, reason="smoke")
        (service,) = storage.services(host=HOST)
        self.assertEqual(("disabled", "smoke"), (service.status, service.disabled_reason))
        storage.enable_service(service)
        (pool,) = storage.backend_pools()
        self.assertEqual("file", pool.capabilities["storage_protocol"])
        self.assertEqual("file", storage.get_capabilities(HOST).storage_protocol)
        self.assertEqual(-1, storage.get_limits().absolute.max_total_volumes)
        (zone,) = storage.availability_zones()
        self.assertEqual({"available": True}, zone.state)
        self.assertIn("os-services", [extension.alias for extension in storage.extensions()])
        resources = [resource_filter.resource for resource_filter in storage.resource_filters()]
        self.assertIn("attachment", resources)
