# SPDX-License-Identifier: Apache-2.0
"""Which secrets an agent defines and removes; functional/test_libvirt_secrets.py has a libvirt."""

import unittest
from unittest import mock

from attachd import exception
from attachd.agent import libvirt_secrets
from attachd.agent.libvirt_secrets import LibvirtSecrets
from attachd.rpc.agent_manager_api import IN_LIBVIRT, AgentCredentials

FIRST, SECOND, THIRD = (f"5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a000{number}" for number in range(1, 4))
CREDENTIALS = AgentCredentials("compute-1", "k" * 43, "p" * 32)
HANGS = exception.HostError(reason="'virsh' did not end in 20 s.")


def desired(attachment_id=FIRST, **values):
    state = {"attachment_id": attachment_id, "target_state": IN_LIBVIRT, "generation": 3}
    return {**state, "complete": True, "connection_info": {"key": "QVE="}, **values}


class LibvirtSecretsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = self.enterContext(mock.patch.object(libvirt_secrets, "agent_manager_api"))
        self.run = self.enterContext(mock.patch.object(libvirt_secrets.commands, "run"))
        self.existing(FIRST)
        self.secrets = LibvirtSecrets(CREDENTIALS, "qemu:///system")

    def existing(self, *ids):
        others = f" {THIRD}  ceph client.cinder secret\n {THIRD}  volume /attachd-{THIRD}\n"
        self.run.return_value = others + "".join(f" {id_}  ceph attachd-{id_}\n" for id_ in ids)

    def commands(self):
        return [call.args[4] for call in self.run.call_args_list]

    def test_list_pending_has_missing_undefined_and_strays(self):
        self.existing(FIRST, SECOND)
        self.assertEqual([SECOND], self.secrets.list_pending([desired()]))
        self.assertEqual(
            [FIRST], self.secrets.list_pending([desired(complete=False), desired(SECOND)])
        )
        self.assertEqual(
            [THIRD], self.secrets.list_pending([desired(), desired(SECOND), desired(THIRD)])
        )

    def test_list_pending_without_libvirt_has_all_that_are_needed(self):
        self.run.side_effect = HANGS
        with self.assertLogs("attachd.agent.libvirt_secrets", "WARNING"):
            self.assertEqual([FIRST], self.secrets.list_pending([desired()]))

    def test_secret_is_defined_and_then_reported(self):
        self.api.connected.side_effect = lambda *_: self.assertEqual(2, self.run.call_count)
        self.secrets.reconcile(FIRST, desired())
        self.assertEqual(["secret-define", "secret-set-value"], self.commands())
        self.assertEqual(f"libvirt secret {FIRST}", self.api.connected.call_args.args[3])

    def test_key_is_in_no_command_line(self):
        self.secrets.reconcile(FIRST, desired())
        for call in self.run.call_args_list:
            self.assertNotIn("QVE=", call.args)
        self.assertEqual("QVE=", self.run.call_args.kwargs["stdin"])

    def test_failure_is_reported_with_generation(self):
        self.run.side_effect = HANGS
        with self.assertRaisesRegex(exception.HostError, "20 s"):
            self.secrets.reconcile(FIRST, desired())
        self.api.failed.assert_called_once_with(CREDENTIALS, FIRST, 3, str(HANGS))
        self.api.connected.assert_not_called()

    def test_changed_state_is_read_again(self):
        self.api.desired_state.return_value = desired(generation=4)
        self.api.connected.side_effect = [exception.InvalidTransition("old"), None]
        self.secrets.reconcile(FIRST, desired())
        self.assertEqual(4, self.api.connected.call_args.args[2])

    def test_secret_of_deleted_attachment_is_removed(self):
        self.secrets.reconcile(FIRST, None)
        self.assertEqual(["secret-list", "secret-undefine"], self.commands())

    def test_removal_does_not_wait_for_libvirt_that_hangs(self):
        self.run.side_effect = HANGS
        with self.assertLogs("attachd.agent.libvirt_secrets", "WARNING"):
            self.secrets.reconcile(SECOND, None)
        self.assertEqual(["secret-list"], self.commands())
