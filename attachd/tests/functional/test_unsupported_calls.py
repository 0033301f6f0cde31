# SPDX-License-Identifier: Apache-2.0
"""Tests of clients that also use unsupported resources."""

import queue

from cinderclient import client as cinder
from cinderclient import exceptions
from cinderclient.contrib import noauth
from keystoneauth1 import session
from openstack import exceptions as sdk_exceptions

from attachd.tests.fixtures import sdk
from attachd.tests.functional import test_client_libraries as libraries
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

PROJECT = "a" * 32


class Case(libraries.Case):
    configuration = ""


@full_only("clients")
class SdkTest(Case):
    def setUp(self):
        super().setUp()
        self.storage = sdk.block_storage(self, self.process.url)
        volume = self.storage.create_volume(name="disk", size=1)
        self.volume = self.storage.wait_for_status(volume, "available", wait=TIMEOUT)

    def test_sdk_unsupported_lists_are_empty(self):
        storage = self.storage
        for asked in (
            *(storage.backups, storage.groups, storage.group_types),
            storage.group_snapshots,
        ):
            self.assertEqual([], list(asked()))

    def test_sdk_creation_of_unsupported_resource_returns_404_with_reason(self):
        storage, volume_id = self.storage, self.volume.id
        reason = "This service has no backups."
        with self.assertRaisesRegex(sdk_exceptions.NotFoundException, reason):
            storage.create_backup(volume_id=volume_id, name="x")

    def test_sdk_project_cleanup_deletes_volumes(self):
        status = queue.Queue()
        self.storage._service_cleanup(
            dry_run=False,
            client_status_queue=status,
            identified_resources={},
        )
        self.assertEqual(self.volume.id, status.get_nowait().id)
        self.wait_for(lambda: not list(self.storage.volumes()))

    def test_sdk_cascade_delete_of_volume_works(self):
        self.storage.delete_volume(self.volume)
        self.wait_for(lambda: not list(self.storage.volumes()))


class CinderClientTest(Case):
    def setUp(self):
        super().setUp()
        plugin = noauth.CinderNoAuthPlugin("alice", PROJECT, endpoint=f"{self.process.url}/v3")
        session_ = session.Session(auth=plugin)
        self.addCleanup(session_.session.close)
        self.client = cinder.Client("3.71", session=session_)

    def test_cinderclient_unsupported_lists_are_empty(self):
        client = self.client
        for manager in (
            *(client.backups, client.groups, client.group_types),
            *(client.group_snapshots, client.consistencygroups, client.cgsnapshots),
        ):
            self.assertEqual([], manager.list())

    def test_cinderclient_read_of_unsupported_resource_returns_404_with_reason(self):
        with self.assertRaisesRegex(exceptions.NotFound, "This service has no backups."):
            self.client.backups.get("b1")

    def test_cinderclient_cascade_delete_of_volume_works(self):
        volume = self.client.volumes.create(1, name="disk")
        self.wait_for(lambda: self.client.volumes.get(volume.id).status == "available")
        self.client.volumes.delete(volume, cascade=True)
        self.wait_for(lambda: not self.client.volumes.list())
