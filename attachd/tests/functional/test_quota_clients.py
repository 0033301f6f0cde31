# SPDX-License-Identifier: Apache-2.0
"""Tests of quotas with the stock commands and the SDK.

The openstack command looks projects up in Keystone, so there is a real one; attachd itself runs
without authentication.
"""

import unittest

import openstack
from openstack import exceptions

from attachd.tests.fixtures import cli_commands, keystone_fixture, lifetime
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.selection import full_only


@full_only("clients")
class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        plain = folder / "plain.conf"
        plain.write_text(
            "[file]\nfile_loop_devices = never\n"
            "[quota]\nquota_volumes = 10\nquota_gigabytes = 1000\n"
        )
        self.process = AllInOne(self, folder / "state", f"--config-file={plain}")
        self.keystone = keystone_fixture.shared(self)
        self.keystone.endpoint("block-storage", f"{self.process.url}/v3/%(project_id)s")
        self.admin = self.keystone.admin
        self.alice = self.keystone.user("alice", "member")

    def shell(self, lines, expected=0, **environment):
        """Run commands as the admin, PROJECT being the id of Alice's project."""
        environment = {**self.admin.environment, "PROJECT": self.alice.project_id, **environment}
        return cli_commands.run_script(self, self.process, lines, expected, **environment)


class OpenStackCommandTest(Case):
    def test_openstack_command_sets_project_quotas(self):
        said = self.shell(
            """
            openstack volume type create gold -f value -c name
            openstack quota set --volumes 5 --gigabytes 6 $PROJECT
            openstack quota set --volumes 2 --volume-type gold $PROJECT
            openstack quota show --volume $PROJECT -f value
            """
        )
        for line in ("volumes 5", "gigabytes 6", "volumes_gold 2", "per-volume-gigabytes -1"):
            self.assertIn(line, said.splitlines())
        said = self.shell("openstack quota show --volume --usage $PROJECT -f value")
        self.assertIn("volumes 5 0 0", said.splitlines())
        said = self.shell("openstack quota list --volume -f value")
        self.assertIn(self.alice.project_id, said)
        said = self.shell(
            """
            openstack quota delete --volume $PROJECT
            openstack quota show --volume $PROJECT -f value
            """
        )
        self.assertIn("volumes 10", said.splitlines())

    def test_openstack_command_sets_default_quotas(self):
        said = self.shell(
            """
            openstack quota set --default --volumes 3
            openstack quota show --volume --default $PROJECT -f value
            openstack quota show --volume $PROJECT -f value
            """
        )
        self.assertEqual(2, said.splitlines().count("volumes 3"))

    def test_openstack_command_names_the_exceeded_quota(self):
        self.shell("openstack quota set --gigabytes 2 $PROJECT")
        said = self.shell(
            "openstack volume create --size 3 disk", expected=1, **self.alice.environment
        )
        self.assertIn("Quota exceeded for gigabytes: 3 more requested, 0 of 2 are used", said)


class CinderCommandTest(Case):
    def test_cinder_command_sets_quotas(self):
        said = self.shell(
            """
            cinder quota-update --volumes 5 --gigabytes 6 $PROJECT
            cinder quota-show $PROJECT
            cinder quota-usage $PROJECT
            cinder quota-update --per-volume-gigabytes 4 --skip-validation False $PROJECT
            """
        )
        self.assertRegex(said, r"(?s)(\| volumes +\| 5 .*){2}")
        self.assertRegex(said, r"\| volumes +\| 0 +\| 0 +\| 5 ")
        self.assertRegex(said, r"\| per_volume_gigabytes +\| 4 ")
        said = self.shell(
            """
            cinder quota-class-update --volumes 7 default
            cinder quota-class-show default
            cinder quota-defaults $PROJECT
            cinder quota-delete $PROJECT
            cinder quota-show $PROJECT
            cinder absolute-limits $PROJECT
            """
        )
        self.assertRegex(said, r"(?s)(\| volumes +\| 7 .*){4}")
        self.assertRegex(said, r"\| maxTotalVolumes +\| 7 ")


class SdkTest(Case):
    def test_sdk_reads_and_sets_quotas(self):
        cloud = openstack.connect(**self.admin.cloud)
        self.addCleanup(cloud.close)
        storage, project = cloud.block_storage, self.alice.project_id
        self.assertEqual(10, storage.get_quota_set(project).volumes)
        self.assertEqual(5, storage.update_quota_set(project, volumes=5).volumes)
        found = storage.get_quota_set(project, usage=True)
        self.assertEqual((5, 0), (found.volumes, found.usage["volumes"]))
        self.assertEqual(10, storage.get_quota_set_defaults(project).volumes)
        storage.revert_quota_set(project)
        self.assertEqual(10, storage.get_quota_set(project).volumes)
        self.assertEqual(7, storage.update_quota_class_set("default", volumes=7).volumes)
        self.assertEqual(7, storage.get_quota_class_set("default").volumes)
        limits = storage.get_limits(project=project)
        self.assertEqual(7, limits.absolute.max_total_volumes)
        self.assertEqual(0, limits.absolute.total_volumes_used)
        storage.update_quota_set(project, volumes=0)
        user = openstack.connect(**self.alice.cloud)
        self.addCleanup(user.close)
        with self.assertRaisesRegex(exceptions.HttpException, "for volumes: .* 0 of 0"):
            user.block_storage.create_volume(size=1)
