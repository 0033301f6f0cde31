# SPDX-License-Identifier: Apache-2.0
"""nova.volume.cinder.API attaches and detaches, by the new calls and by the old ones.

It has Nova's configuration, a user's token and, as Nova recommends, a service token.
"""

from pathlib import Path
import tempfile
import unittest
import uuid

from keystoneauth1 import session as keystone_session
from keystoneauth1.identity import v3
from nova import context as nova_context
from nova import exception as nova_exception
import nova.conf
from nova.volume import cinder

from attachd.tests.consumers import credentials
from attachd.tests.wait import wait_until

CONFIGURATION = """\
[cinder]
catalog_info = block-storage::publicURL
[service_user]
send_service_user_token = true
auth_type = password
auth_url = {auth_url}
username = {service_user}
password = {service_password}
user_domain_name = Default
project_name = {service_project}
project_domain_name = Default
"""


def connector(host):
    return {
        "host": host,
        "ip": "127.0.0.1",
        "initiator": f"iqn.2026-01.test:{host}",
        "multipath": False,
        "platform": "x86_64",
        "os_type": "linux",
    }


def as_nova_gets_it(catalog):
    """Rewrite a catalogue as keystonemiddleware does for the services behind it."""
    return [
        {
            "type": service["type"],
            "name": service["name"],
            "endpoints": [
                {f"{endpoint['interface']}URL": endpoint["url"], "region": endpoint["region"]}
                for endpoint in service["endpoints"]
            ],
        }
        for service in catalog
    ]


class NovaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cloud = credentials.read()
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(CONFIGURATION.format(**vars(cls.cloud)))
            file.flush()
            nova.conf.CONF([], project="nova", default_config_files=[str(Path(file.name))])
        auth = v3.Password(
            auth_url=cls.cloud.auth_url,
            username=cls.cloud.user,
            password=cls.cloud.password,
            project_name=cls.cloud.project,
            user_domain_name="Default",
            project_domain_name="Default",
        )
        access = auth.get_access(keystone_session.Session())
        cls.context = nova_context.RequestContext(
            user_id=access.user_id,
            project_id=access.project_id,
            auth_token=access.auth_token,
            roles=access.role_names,
            service_catalog=as_nova_gets_it(access.service_catalog.catalog),
        )
        cls.api = cinder.API()

    def setUp(self):
        super().setUp()
        self.server = str(uuid.uuid4())
        volume = self.api.create(self.context, 1, "disk", "Nova made it")
        self.volume = volume["id"]
        self.addCleanup(self._delete)
        self._wait_for("available")

    def _delete(self):
        self.api.delete(self.context, self.volume)

        def is_gone():
            try:
                self.api.get(self.context, self.volume)
            except nova_exception.VolumeNotFound:
                return True
            return False

        wait_until(is_gone)

    def _wait_for(self, status):
        wait_until(lambda: self._status() == status, lambda: f"{self._status()} is not {status}")

    def _status(self):
        return self.api.get(self.context, self.volume)["status"]

    def test_volume_of_a_snapshot_as_images_of_servers_need_it_succeeds(self):
        taken = self.api.create_snapshot_force(self.context, self.volume, "of a server", "")["id"]
        wait_until(lambda: self.api.get_snapshot(self.context, taken)["status"] == "available")
        snapshot = self.api.get_snapshot(self.context, taken)
        made = self.api.create(self.context, 1, "boot", "of it", snapshot=snapshot)["id"]
        wait_until(lambda: self.api.get(self.context, made)["status"] == "available")
        self.api.delete(self.context, made)
        self.api.delete_snapshot(self.context, taken)

        def is_gone():
            try:
                self.api.get_snapshot(self.context, taken)
            except nova_exception.SnapshotNotFound:
                return True
            return False

        wait_until(is_gone)

    def test_server_attach_and_detach_succeed(self):
        made = self.api.attachment_create(self.context, self.volume, self.server)
        self.assertEqual("reserved", self._status())
        updated = self.api.attachment_update(
            self.context, made["id"], connector("compute-1"), mountpoint="/dev/vdb"
        )
        self.assertIn("driver_volume_type", updated["connection_info"])
        self.api.attachment_complete(self.context, made["id"])
        shown = self.api.get(self.context, self.volume)
        self.assertEqual("in-use", shown["status"])
        self.assertEqual(made["id"], shown["attachments"][self.server]["attachment_id"])
        self.assertEqual("/dev/vdb", shown["attachments"][self.server]["mountpoint"])
        (listed,) = self.api.attachment_get_all(self.context, instance_id=self.server)
        self.assertEqual(made["id"], listed["id"])
        self.assertIn("data", self.api.attachment_get(self.context, made["id"])["connection_info"])
        self.api.attachment_delete(self.context, made["id"])
        self.assertEqual("available", self._status())
        self.api.attachment_delete(self.context, made["id"])  # gone already: Nova goes on

    def test_live_migration_moves_attachment(self):
        local = self.api.attachment_create(
            self.context, self.volume, self.server, connector("compute-1"), "/dev/vdb"
        )
        self.api.attachment_complete(self.context, local["id"])
        existing = self.api.attachment_create(
            self.context, self.volume, self.server, connector("compute-2"), "/dev/vdb"
        )
        self.api.attachment_complete(self.context, existing["id"])
        self.api.attachment_delete(self.context, local["id"])
        self.assertEqual("in-use", self._status())
        self.api.attachment_delete(self.context, existing["id"])
        self.assertEqual("available", self._status())

    def test_legacy_attach_and_detach_succeed(self):
        self.api.reserve_volume(self.context, self.volume)
        self.assertEqual("attaching", self._status())
        info = self.api.initialize_connection(self.context, self.volume, connector("compute-1"))
        self.assertIn("data", info)
        self.api.attach(self.context, self.volume, self.server, "/dev/vdb")
        shown = self.api.get(self.context, self.volume)
        self.assertEqual("in-use", shown["status"])
        attachment = shown["attachments"][self.server]["attachment_id"]
        self.api.begin_detaching(self.context, self.volume)
        self.assertEqual("detaching", self._status())
        self.api.terminate_connection(self.context, self.volume, connector("compute-1"))
        self.api.detach(self.context, self.volume, self.server, attachment)
        self.assertEqual("available", self._status())

    def test_failed_detach_is_rolled_back(self):
        made = self.api.attachment_create(
            self.context, self.volume, self.server, connector("compute-1")
        )
        self.api.attachment_complete(self.context, made["id"])
        self.api.begin_detaching(self.context, self.volume)
        self.api.roll_detaching(self.context, self.volume)
        self.assertEqual("in-use", self._status())
        self.api.attachment_delete(self.context, made["id"])

    def test_volume_in_use_is_refused_to_another_server(self):
        made = self.api.attachment_create(self.context, self.volume, self.server)
        with self.assertRaises(nova_exception.InvalidInput):
            self.api.attachment_create(self.context, self.volume, str(uuid.uuid4()))
        self.api.attachment_delete(self.context, made["id"])

    def test_limits_and_types_are_readable(self):
        limits = self.api.get_absolute_limits(self.context)
        self.assertIn("maxTotalVolumeGigabytes", limits)
        self.assertIsInstance(self.api.get_all_volume_types(self.context), list)
        encryption = self.api.get_volume_encryption_metadata(self.context, self.volume)
        self.assertEqual({"encryption_key_id": None}, encryption)
        cinder.is_microversion_supported(self.context, "3.68")
