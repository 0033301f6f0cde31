# SPDX-License-Identifier: Apache-2.0
"""Programs of a host learn of the devices of its attachments, and of nothing else."""

from concurrent import futures
import json
from unittest import mock

from attachd import exception
from attachd.agent import local_calls, local_socket
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.local_calls import LocalCalls
from attachd.agent.local_socket import CallError, Code
from attachd.agent.reconciler import Reconciler
from attachd.rpc import agent_manager_api, manager_api
from attachd.tests.fixtures import db_rows, fake_host
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.fixtures.fake_host import CREDENTIALS, GIB
from attachd.tests.wait import TIMEOUT, wait_until

UNKNOWN = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001"


class LocalCallsTest(fake_host.FakeHostCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.submit = mock.Mock()
        self.check_lease = mock.Mock()
        self.calls = LocalCalls(self.host, CREDENTIALS, self.submit, self.check_lease)
        self.reconciler = Reconciler(self.host, CREDENTIALS, Options(), slots=2)

    def call(self, name, **arguments):
        return self.calls.by_name()[name](arguments)

    def assert_refused(self, code, message, name, **arguments):
        with self.assertRaisesRegex(CallError, message) as raised:
            self.call(name, **arguments)
        self.assertEqual(code, raised.exception.kind)

    def attached(self, **values):
        attachment_id = self.add(**values)
        self.reconciler.reconcile(attachment_id)
        return attachment_id

    def test_host_is_described(self):
        override(self, "max_attachments", 28, group="agent")
        self.attached()
        expected = {
            "name": fake_host.NAME,
            "connector_type": "file",
            "initiator": None,
            "state_path": f"{self.top}",
            "attachments": 1,
            "max_attachments": 28,
        }
        self.assertEqual(expected, self.call("host"))

    def test_device_is_described_without_secrets(self):
        answer = self.call("device", attachment_id=self.attached())
        expected = {
            "volume_id": self.volume_id,
            "path": f"{self.connector.path('t1')}",
            "mode": "rw",
            "size_bytes": GIB,
            "condition": {"paths": [], "error": None},
        }
        self.assertEqual(expected, answer)
        self.assertNotIn("hidden-from-logs", json.dumps(answer))
        self.submit.assert_not_called()

    def test_device_is_waited_for_without_polling(self):
        attachment_id = self.add()
        with futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                self.call, "device", attachment_id=attachment_id, timeout=TIMEOUT
            )
            wait_until(lambda: self.submit.called)
            self.reconciler.reconcile(attachment_id)
            self.assertEqual(self.volume_id, waiting.result()["volume_id"])
        self.submit.assert_called_once_with([attachment_id])

    def test_device_that_is_not_there_in_time_is_not_ready(self):
        attachment_id = self.add()
        self.assert_refused(
            Code.NOT_READY, "not connected yet", "device", attachment_id=attachment_id
        )
        self.connector.failing.add("connect")
        with self.assertRaises(exception.HostError):
            self.reconciler.reconcile(attachment_id)
        self.assert_refused(
            Code.NOT_READY, "It could not connect", "device", attachment_id=attachment_id
        )

    def test_attachment_that_is_to_have_no_device_is_not_found(self):
        for attachment_id in (UNKNOWN, self.add("withdrawing"), self.add(agent="other")):
            for name in ("device", "grow"):
                self.assert_refused(
                    Code.NOT_FOUND, attachment_id, name, attachment_id=attachment_id
                )

    def test_device_of_command_is_not_found(self):
        self.host.journal.write(
            Entry("v", Owner.LOCAL, Step.ATTACHED, attachment_id=UNKNOWN, connection_info={})
        )
        self.assert_refused(Code.NOT_FOUND, UNKNOWN, "device", attachment_id=UNKNOWN)

    def test_device_without_manager_is_waited_for(self):
        away = exception.Unavailable(reason="No manager answers.")
        with mock.patch.object(agent_manager_api, "desired_state", side_effect=away):
            self.assert_refused(Code.NOT_READY, UNKNOWN, "device", attachment_id=UNKNOWN)
            with self.assertRaises(exception.Unavailable):
                self.call("grow", attachment_id=UNKNOWN)

    def test_device_before_first_report_of_process_is_waited_for(self):
        early = exception.ProcessNotAccepted(host="node-1")
        with mock.patch.object(agent_manager_api, "desired_state", side_effect=early):
            self.assert_refused(Code.NOT_READY, UNKNOWN, "device", attachment_id=UNKNOWN)
            with self.assertRaises(exception.ProcessNotAccepted) as caught:
                self.call("grow", attachment_id=UNKNOWN)
        # A caller repeats it: nothing is wrong with the host.
        self.assertEqual(Code.UNAVAILABLE, local_socket._code_of(caught.exception))

    def test_host_without_lease_has_no_usable_device(self):
        attachment_id = self.attached()
        self.check_lease.side_effect = exception.HostError(reason="The lease is over.")
        for name in ("device", "grow"):
            self.assert_refused(Code.UNAVAILABLE, "lease", name, attachment_id=attachment_id)

    def test_invalid_arguments_are_refused(self):
        for value in (None, 1, "", "../x", UNKNOWN.upper(), "x" * 36, [UNKNOWN]):
            self.assert_refused(Code.INVALID, "UUID", "device", attachment_id=value)
        for value in (None, "1", True, -1, float("nan"), [1]):
            self.assert_refused(
                Code.INVALID, "seconds", "device", attachment_id=UNKNOWN, timeout=value
            )

    def test_wait_has_a_limit(self):
        self.enterContext(mock.patch.object(local_calls, "MAX_TIMEOUT", 0))
        self.assert_refused(
            Code.NOT_READY, "", "device", attachment_id=self.add(), timeout=10**400
        )

    def test_device_grows_with_its_volume(self):
        attachment_id = self.attached()
        expected = {"size_bytes": GIB, "volume_bytes": GIB, "is_shared": False}
        self.assertEqual(expected, self.call("grow", attachment_id=attachment_id))
        self.assertNotIn("extend", self.connector.calls)
        db_rows.change_volume(self.volume_id, size_gib=2)
        self.connector.size_gib = 2
        expected = {"size_bytes": 2 * GIB, "volume_bytes": 2 * GIB, "is_shared": False}
        self.assertEqual(expected, self.call("grow", attachment_id=attachment_id))

    def test_device_of_locked_volume_does_not_grow(self):
        attachment_id = self.attached()
        with (
            self.host.journal.volume_lock(self.volume_id),
            self.assertRaises(exception.LocalConflict),
        ):
            self.call("grow", attachment_id=attachment_id)

    def test_missing_device_does_not_grow(self):
        self.assert_refused(Code.NOT_READY, "not connected", "grow", attachment_id=self.add())
