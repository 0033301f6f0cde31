# SPDX-License-Identifier: Apache-2.0
"""ironic.common.cinder attaches volumes to a bare metal node, and detaches them.

Task and node are the little of Ironic's that the module looks at; the rest is Ironic's code,
openstacksdk, Keystone and attachd.
"""

from pathlib import Path
import tempfile
import types
import unittest
import uuid

from ironic.common import cinder, exception
from ironic.common import context as ironic_context
from ironic.conf import CONF
import openstack

from attachd.tests.consumers import credentials
from attachd.tests.wait import TIMEOUT, wait_until

CONFIGURATION = """\
[cinder]
auth_type = password
auth_url = {auth_url}
username = {service_user}
password = {service_password}
user_domain_name = Default
project_name = {project}
project_domain_name = Default
service_type = block-storage
valid_interfaces = public
"""

CONNECTOR = {
    "host": "node-1",
    "ip": "127.0.0.1",
    "initiator": "iqn.2026-01.test:node-1",
    "multipath": False,
}


class IronicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cloud = credentials.read()
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(CONFIGURATION.format(**vars(cls.cloud)))
            file.flush()
            CONF([], project="ironic", default_config_files=[str(Path(file.name))])
        cls.volumes = openstack.connect(
            auth_url=cls.cloud.auth_url,
            username=cls.cloud.user,
            password=cls.cloud.password,
            project_name=cls.cloud.project,
            user_domain_name="Default",
            project_domain_name="Default",
            load_envvars=False,
            load_yaml_config=False,
        ).block_storage

    def setUp(self):
        super().setUp()
        self.node = types.SimpleNamespace(uuid=str(uuid.uuid4()), instance_uuid=str(uuid.uuid4()))
        context = ironic_context.RequestContext(auth_token=None)
        self.task = types.SimpleNamespace(node=self.node, context=context)
        self.volume = self.volumes.create_volume(name="root", size=1).id
        self.addCleanup(self._delete)
        self._wait_for("available")

    def _delete(self):
        gone = self.volumes.get_volume(self.volume)
        self.volumes.delete_volume(gone)
        self.volumes.wait_for_delete(gone, interval=0.1, wait=TIMEOUT)

    def _wait_for(self, status):
        def now():
            return self.volumes.get_volume(self.volume).status

        wait_until(lambda: now() == status, lambda: f"{now()} is not {status}")

    def test_node_attach_and_detach_succeed(self):
        (connected,) = cinder.attach_volumes(self.task, [self.volume], CONNECTOR)
        self.assertIn("driver_volume_type", connected)
        self.assertEqual(self.volume, connected["data"]["volume_id"])
        shown = self.volumes.get_volume(self.volume)
        self.assertEqual("in-use", shown.status)
        (attachment,) = shown.attachments
        self.assertEqual(self.node.instance_uuid, attachment["server_id"])
        self.assertEqual("ironic_mountpoint", attachment["device"])
        self.assertIn(f"ironic_node_{self.node.uuid}", shown.metadata)
        (again,) = cinder.attach_volumes(self.task, [self.volume], CONNECTOR)
        self.assertTrue(again["already_attached"])
        cinder.detach_volumes(self.task, [self.volume], CONNECTOR)
        self._wait_for("available")
        self.assertEqual([], self.volumes.get_volume(self.volume).attachments)

    def test_detach_of_detached_volume_is_ignored(self):
        cinder.detach_volumes(self.task, [self.volume], CONNECTOR)
        self.assertEqual("available", self.volumes.get_volume(self.volume).status)

    def test_volume_in_use_is_refused(self):
        cinder.attach_volumes(self.task, [self.volume], CONNECTOR)
        other = types.SimpleNamespace(uuid=str(uuid.uuid4()), instance_uuid=None)
        task = types.SimpleNamespace(node=other, context=self.task.context)
        with self.assertRaises(exception.StorageError):
            cinder.attach_volumes(task, [self.volume], {**CONNECTOR, "host": "node-2"})
        cinder.detach_volumes(self.task, [self.volume], CONNECTOR)
        self._wait_for("available")
