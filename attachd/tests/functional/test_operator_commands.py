# SPDX-License-Identifier: Apache-2.0
"""Tests of stock commands for administrators: services, hosts, backends, log levels."""

from attachd.tests.functional import test_clients
from attachd.tests.selection import full_only

HOST = "all-in-one@file"
MODULE = "attachd.manager.periodic_tasks.backend_heartbeat"


@full_only("clients")
class OpenStackCommandTest(test_clients.Case):
    def test_openstack_command_lists_and_disables_services(self):
        said = self.shell(
            f"""
            openstack volume service set --disable --disable-reason smoke {HOST} cinder-volume
            openstack volume service list --long -f value -c Status -c "Disabled Reason"
            openstack volume service set --enable {HOST} cinder-volume
            openstack volume service list --service cinder-volume -f value -c Status -c State
            """
        )
        self.assertEqual(["disabled smoke", "enabled up"], said.splitlines())

    def test_openstack_command_freezes_and_thaws_host(self):
        said = self.shell(
            f"""
            openstack volume create --size 1 disk -f value -c name; wait_for available
            openstack volume host set --disable {HOST}
            openstack volume create --size 1 other 2>&1 && exit 1
            openstack volume delete disk 2>&1 && exit 1
            openstack volume host set --enable {HOST}
            openstack volume delete disk
            export OS_VOLUME_API_VERSION=3.71
            openstack volume host failover {HOST} --volume-backend there 2>&1 || echo refused
            """
        )
        lines = said.splitlines()
        self.assertIn("down, disabled or frozen", lines[1])
        self.assertIn("The backend is frozen", said)
        self.assertIn("cannot fail over", lines[-2])
        self.assertEqual("refused", lines[-1])

    def test_openstack_command_lists_backends(self):
        said = self.shell(
            f"""
            openstack volume backend pool list -f value
            openstack volume backend pool list --long -f value -c Capabilities
            openstack volume backend capability show {HOST} -f value -c Key -c Type
            openstack block storage cluster list -f value
            """
        )
        lines = said.splitlines()
        self.assertEqual(f"{HOST}#file", lines[0])
        self.assertIn("'storage_protocol': 'file'", lines[1])
        self.assertIn("multiattach boolean", lines)

    def test_openstack_command_sets_log_levels(self):
        said = self.shell(
            f"""
            export OS_VOLUME_API_VERSION=3.71
            log="openstack block storage log level"
            service="--service cinder-volume --host {HOST}"
            $log set DEBUG $service --log-prefix attachd.manager.periodic_tasks.b
            $log list --log-prefix {MODULE} -f value
            $log list --log-prefix {MODULE} --service cinder-volume -f value
            """
        )
        # In all-in-one, the API is the same process.
        name = f"cinder-volume {HOST} {MODULE} DEBUG"
        self.assertEqual([name, name], said.splitlines()[1:])
        self.assertRegex(said, rf"^cinder-api \S+ {MODULE} DEBUG")


@full_only("clients")
class CinderCommandTest(test_clients.Case):
    def test_cinder_command_lists_and_disables_services(self):
        said = self.shell(
            f"""
            cinder service-disable {HOST} cinder-volume --reason smoke
            cinder service-list --withreplication
            cinder service-enable {HOST} cinder-volume
            cinder service-list --binary cinder-volume
            """
        )
        self.assertRegex(said, r"disabled \| up .* smoke")
        self.assertRegex(said, r"enabled \| up")

    def test_cinder_command_freezes_and_thaws_host(self):
        said = self.shell(
            f"""
            cinder freeze-host {HOST}
            cinder service-list --withreplication
            cinder create 1 2>&1 && exit 1
            cinder thaw-host {HOST}
            cinder failover-host {HOST} 2>&1 || echo refused
            """
        )
        self.assertRegex(said, r"disabled \| up .* True .* frozen")
        self.assertIn("down, disabled or frozen", said)
        self.assertIn("cannot fail over", said)

    def test_cinder_command_shows_backends_log_levels_and_cleanup(self):
        said = self.shell(
            f"""
            export OS_VOLUME_API_VERSION=3.71
            cinder get-pools --detail
            cinder get-capabilities {HOST}
            cinder cluster-list
            cinder service-set-log DEBUG --binary cinder-volume --prefix {MODULE}
            cinder service-get-log --prefix {MODULE}
            cinder work-cleanup --is-up true
            """
        )
        self.assertRegex(said, r"storage_protocol +\| file")
        self.assertIn(f"OS::Storage::Capabilities::{HOST}", said)
        self.assertRegex(said, rf"cinder-volume \| {HOST} +\| {MODULE} +\| DEBUG")
