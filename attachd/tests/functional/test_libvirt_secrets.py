# SPDX-License-Identifier: Apache-2.0
"""Secrets in a real libvirt; attachd/tests/nova has guests that use them."""

import base64
from unittest import mock
import uuid

import testtools

from attachd import exception
from attachd.agent import libvirt_secrets
from attachd.agent.libvirt_secrets import LibvirtSecrets
from attachd.rpc.agent_manager_api import IN_LIBVIRT, AgentCredentials
from attachd.tests.fixtures.libvirtd import Libvirtd
from attachd.tests.selection import full_only

CREDENTIALS = AgentCredentials("compute-1", "k" * 43, "p" * 32)
KEYS = [base64.b64encode(text).decode() for text in (b"first key", b"second key")]


@full_only("hosts")
class LibvirtSecretsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.libvirt = Libvirtd(self)
        patcher = mock.patch.object(libvirt_secrets, "agent_manager_api")
        self.api = patcher.start()
        self.addCleanup(patcher.stop)
        self.secrets = LibvirtSecrets(CREDENTIALS, self.libvirt.uri)
        self.attachment_id = f"{uuid.uuid4()}"

    def desired(self, key=KEYS[0]):
        """Return the desired state of a secret with this key."""
        state = {"attachment_id": self.attachment_id, "target_state": IN_LIBVIRT, "generation": 1}
        return {**state, "complete": True, "connection_info": {"key": key}}

    def define(self, key=KEYS[0]):
        desired = self.desired(key)
        self.secrets.reconcile(self.attachment_id, desired)
        return desired

    def test_secret_is_private_and_on_no_disk(self):
        self.define()
        self.assertEqual({self.attachment_id}, self.secrets.list_ids())
        answer = self.libvirt.virsh("secret-get-value", self.attachment_id)
        self.assertIn("private", answer.stderr)
        description = self.libvirt.virsh("secret-dumpxml", self.attachment_id).stdout
        self.assertIn("ephemeral='yes' private='yes'", description)
        self.assertIn(f"<name>attachd-{self.attachment_id}</name>", description)
        files = [path for path in self.libvirt.folder.rglob("*") if path.is_file()]
        self.assertTrue(files)
        for path in files:
            self.assertNotIn(KEYS[0].encode(), path.read_bytes())
            self.assertNotIn(self.attachment_id, path.name)

    def test_define_again_replaces_key(self):
        self.define()
        self.define(KEYS[1])
        self.assertEqual({self.attachment_id}, self.secrets.list_ids())

    def test_restart_of_libvirt_loses_secret_which_is_defined_again(self):
        desired = self.define()
        self.assertEqual([], self.secrets.list_pending([desired]))
        self.libvirt.stop()
        self.libvirt.start()
        self.assertEqual([self.attachment_id], self.secrets.list_pending([desired]))
        self.define()
        self.assertEqual([], self.secrets.list_pending([desired]))

    def test_stray_is_removed_and_secrets_of_others_stay(self):
        self.define()
        other = f"{uuid.uuid4()}"
        file = self.libvirt.folder / "other.xml"
        usage = "<usage type='ceph'><name>client.cinder secret</name></usage>"
        file.write_text(f"<secret ephemeral='yes'><uuid>{other}</uuid>{usage}</secret>")
        self.assertEqual(0, self.libvirt.virsh("secret-define", f"{file}").returncode)
        self.assertEqual([self.attachment_id], self.secrets.list_pending([]))
        for id_ in (self.attachment_id, other):
            self.secrets.reconcile(id_, None)
        self.assertEqual(set(), self.secrets.list_ids())
        self.assertIn(other, self.libvirt.virsh("secret-list").stdout)

    def test_libvirt_that_is_away_is_reported_with_its_reason(self):
        self.libvirt.stop()
        with self.assertRaisesRegex(exception.HostError, "virsh"):
            self.secrets.reconcile(self.attachment_id, self.desired())
        self.assertRegex(self.api.failed.call_args.args[3], "virsh.*failed.*connect")
