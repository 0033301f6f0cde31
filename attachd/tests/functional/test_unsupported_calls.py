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
from attachd.tests.wait import TIMEOUT

PROJECT = "a" * 32
SKIPPED = ["block_storage.backup", "block_storage.snapshot"]


class Case(libraries.Case):
    configuration = ""


class SdkTest(Case):
    def setUp(self):
        super().setUp()
        self.storage = sdk.block_storage(self, self.process.url)
        volume = self.storage.create_volume(name="disk", size=1)
        self.volume = self.storage.wait_for_status(volume, "available", wait=TIMEOUT)

    def test_sdk_unsupported_lists_return_404_with_reason(self):
        storage = self.storage
        lists = {
            "snapshots": storage.snapshots,
            "backups": storage.backups,
            "groups of volumes": storage.groups,
            "group types": storage.group_types,
            "snapshots of groups": storage.group_snapshots,
            "transfers of volumes": storage.transfers,
        }
        for name, asked in lists.items():
            reason = f"This service has no {name}."
            with self.assertRaisesRegex(sdk_exceptions.NotFoundException, reason):
                list(asked())

    def test_sdk_project_cleanup_without_unsupported_resources_works(self):
        status = queue.Queue()
        self.storage._service_cleanup(
            dry_run=False,
            client_status_queue=status,
            identified_resources={},
            skip_resources=SKIPPED,
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

    def test_cinderclient_unsupported_lists_return_404_with_reason(self):
        client = self.client
        lists = {
            "snapshots": client.volume_snapshots,
            "backups": client.backups,
            "groups of volumes": client.groups,
            "group types": client.group_types,
            "snapshots of groups": client.group_snapshots,
            "consistency groups": client.consistencygroups,
            "snapshots of consistency groups": client.cgsnapshots,
            "transfers of volumes": client.transfers,
        }
        for name, manager in lists.items():
            with self.assertRaisesRegex(exceptions.NotFound, f"This service has no {name}."):
                manager.list()

    def test_cinderclient_cascade_delete_of_volume_works(self):
        volume = self.client.volumes.create(1, name="disk")
        self.wait_for(lambda: self.client.volumes.get(volume.id).status == "available")
        self.client.volumes.delete(volume, cascade=True)
        self.wait_for(lambda: not self.client.volumes.list())
