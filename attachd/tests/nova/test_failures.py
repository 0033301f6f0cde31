# SPDX-License-Identifier: Apache-2.0
"""Servers with volumes while a nova-compute is killed or a backend is away."""

from attachd.tests.nova.case import COMPUTES, NovaCase
from attachd.tests.wait import wait_until

HOST = COMPUTES[0]


class KilledComputeTest(NovaCase):
    def test_attach_of_killed_compute_is_undone_by_detach(self):
        server, volume = self.admin.server(host=HOST), self.admin.volume("disk")
        self.hold(HOST, "attach")
        self.admin.add(server, volume, wait_for=None)
        wait_until(lambda: self.cloud.calls(HOST, "attach", volume))
        self.kill_compute(HOST)
        self.release(HOST, "attach")
        self.restart_compute(HOST)
        (row,) = self.attachments(volume)
        self.assertEqual(server, row["instance"])
        self.admin.delete(server)
        self.admin.volume_is(volume, "available")
        self.assert_agreed()

    def test_failed_attach_leaves_nothing(self):
        server, volume = self.admin.server(host=HOST), self.admin.volume("disk")
        self.hold(HOST, "attach")
        self.cloud.hold(HOST, "fail-attach")
        self.addCleanup(self.cloud.hold, HOST, "fail-attach", False)
        self.admin.add(server, volume, wait_for=None)
        wait_until(lambda: self.cloud.calls(HOST, "attach", volume))
        self.release(HOST, "attach")
        wait_until(lambda: self.action_result(server, "attach_volume") == "Error")
        self.admin.volume_is(volume, "available")
        self.assertEqual({}, self.admin.volumes_of(server))
        self.assert_agreed()

    def test_server_of_killed_compute_is_deleted_with_its_attachment(self):
        server, volume = self.server_with_volume()
        self.kill_compute(HOST)
        self.admin.delete(server)
        self.admin.volume_is(volume, "available")
        self.assert_agreed()


class AbsentStorageTest(NovaCase):
    def setUp(self):
        super().setUp()
        self.server, self.volume = self.server_with_volume(vtype="iscsi")

    def detach(self):
        path = f"/servers/{self.server}/os-volume_attachments/{self.volume}"
        return self.admin.call("compute", "DELETE", path)[0]

    def test_detach_that_failed_is_repeated_when_the_storage_is_back(self):
        self.stop_storage()
        self.assertEqual(202, self.detach())
        wait_until(lambda: self.action_result(self.server, "detach_volume") == "Error")
        self.start_storage()
        wait_until(lambda: self.states(self.volume) != ["error_detaching"])
        self.assertEqual(202, self.detach())
        self.wait_until_status(self.volume, "available")
        wait_until(lambda: self.volume not in self.admin.volumes_of(self.server))
        self.assert_agreed()

    def test_server_deleted_without_its_storage_leaves_nothing_when_that_is_back(self):
        self.stop_storage()
        self.admin.delete(self.server)
        self.start_storage()
        self.wait_until_status(self.volume, "available")
        self.assert_agreed()
