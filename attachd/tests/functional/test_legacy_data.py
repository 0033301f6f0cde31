# SPDX-License-Identifier: Apache-2.0
"""Tests of data on volumes attached by the legacy actions, as Ironic and old Nova send them."""

import secrets

from attachd.tests.fixtures import initiators
from attachd.tests.functional import test_backend_data as data
from attachd.tests.selection import full_only

MIB = data.MIB
NODE = "11111111-2222-4333-8444-555555555555"


class LegacyLifeTest(data.IscsiCase):
    """openstacksdk's calls, in the order in which ironic.common.cinder makes them."""

    def let_in(self, host):
        """Connect a host; return the connection info."""
        return self.sdk.init_volume_attachment(self.volume, host.connector)

    def attached(self):
        """Return the volume's attachments."""
        return self.api.volume(self.volume)["attachments"]

    def status(self):
        return self.api.volume(self.volume)["status"]

    def give_back(self, host):
        """Detach it as Ironic does."""
        self.sdk.begin_volume_detaching(self.volume)
        self.assertEqual("detaching", self.status())
        self.sdk.terminate_volume_attachment(self.volume, host.connector)
        self.assertEqual("detaching", self.status())
        (attachment,) = [item for item in self.attached() if item["server_id"] == NODE]
        self.sdk.detach_volume(self.volume, attachment["attachment_id"])

    def test_legacy_attach_data_is_read_by_the_next_host(self):
        written = secrets.token_bytes(2 * MIB)
        self.sdk.reserve_volume(self.volume)
        self.assertEqual("attaching", self.status())
        info = self.let_in(self.a)
        self.sdk.attach_volume(self.volume, "ironic_mountpoint", instance=NODE)
        self.assertEqual("in-use", self.status())
        self.a.write(info, 100 * MIB, written)
        self.give_back(self.a)
        self.assertEqual(("available", []), (self.status(), self.attached()))
        self.assert_nothing_is_exported()
        self.assertRaises(initiators.Refused, self.a.read, info, 0, 512)

        attachment, info = self.attach(self.volume, self.b)
        device = {"data": {"device_path": self.b.attach(info)}}
        local = initiators.LocalHost("host-b")
        self.assertEqual(written, local.read(device, 100 * MIB, len(written)))
        self.b.detach()
        self.sdk.delete_attachment(attachment)
        self.assert_nothing_is_exported()

    def test_legacy_detach_closes_open_connections(self):
        self.sdk.reserve_volume(self.volume)
        info = self.let_in(self.a)
        self.sdk.attach_volume(self.volume, "ironic_mountpoint", instance=NODE)
        session = self.a.log_in(info)
        self.addCleanup(session.kill)
        (attachment,) = self.attached()
        self.sdk.delete_attachment(attachment["attachment_id"])
        self.assert_nothing_is_exported()
        self.assertEqual("available", self.status())

    def test_legacy_unreserve_closes_unused_connections(self):
        self.sdk.reserve_volume(self.volume)
        info = self.let_in(self.a)
        self.a.read(info, 0, 512)
        self.sdk.unreserve_volume(self.volume)
        self.assertEqual("available", self.status())
        self.assert_nothing_is_exported()

    def test_legacy_live_migration_reads_data_from_both_hosts(self):
        written = secrets.token_bytes(MIB)
        self.sdk.reserve_volume(self.volume)
        existing = self.let_in(self.a)
        self.sdk.attach_volume(self.volume, "/dev/vdb", instance=NODE)
        self.a.write(existing, 0, written)
        first = self.let_in(self.b)
        device = {"data": {"device_path": self.b.attach(first)}}
        local = initiators.LocalHost("host-b")
        self.assertEqual(written, local.read(device, 0, len(written)))
        self.sdk.terminate_volume_attachment(self.volume, self.a.connector)
        self.assertRaises(initiators.Refused, self.a.read, existing, 0, 512)
        local.write(device, 0, written[::-1])
        self.b.detach()
        self.give_back(self.b)
        self.assert_nothing_is_exported()


@full_only("deployments")
class DeployedLegacyLifeTest(LegacyLifeTest):
    """The same with the API under uWSGI, a manager with two workers, RabbitMQ and MariaDB."""

    serve = data.DeployedLifeTest.serve
