# SPDX-License-Identifier: Apache-2.0
"""RPC client of agents for managers: the key in each message, and mapping of errors."""

import inspect
import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.rpc import agent_manager_api, agent_transport

CREDENTIALS = agent_manager_api.AgentCredentials("compute-1", "k" * 43, "p" * 32)
MESSAGES = {
    "report": {"report": {"error": None}},
    "renew": {"renewal": {"content_number": 1}},
    "desired_state": {"attachment_id": "a"},
    "connected": {"attachment_id": "a", "generation": 2, "device": "/dev/sdb"},
    "failed": {"attachment_id": "a", "generation": 2, "error": "no session"},
    "disconnected": {"attachment_id": "a", "generation": 2},
    "detach_refused": {"attachment_id": "a", "generation": 2, "error": "mounted"},
}


def ask(method):
    return getattr(agent_manager_api, method)(CREDENTIALS, *MESSAGES[method].values())


class AgentManagerApiTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.client = mock.Mock()
        self.made = self.enterContext(
            mock.patch.object(agent_transport, "get_registry_client", return_value=self.client)
        )

    def test_module_has_only_listed_methods(self):
        functions = inspect.getmembers(agent_manager_api, inspect.isfunction)
        ours = {name for name, item in functions if item.__module__ == agent_manager_api.__name__}
        self.assertEqual(set(MESSAGES), {name for name in ours if not name.startswith("_")})

    def test_messages_go_to_registry_with_host_key_and_process(self):
        for method, arguments in MESSAGES.items():
            self.client.reset_mock()
            process = {} if method in {"report", "renew"} else {"process": "p" * 32}
            ask(method)
            self.made.assert_called_with(
                "compute-1", agent_manager_api.TIMEOUT, agent_manager_api.VERSION
            )
            self.client.call.assert_called_once_with(
                mock.ANY, method, host="compute-1", key="k" * 43, **process, **arguments
            )

    def test_large_report_has_no_details_of_devices(self):
        needed = {"attachment_id": "a" * 36, "volume_id": "v" * 36, "path": "/dev/sdb"}
        paths = [{"name": "sdb", "state": "active"}] * 8
        details = {"paths": paths, "last_io_error": None, "mountpoint": "/mnt"}
        device = needed | details
        for count, sent in ((100, device), (700, needed)):
            said = {"devices": [device] * count, "observed": None}
            agent_manager_api.report(CREDENTIALS, said)
            report = self.client.call.call_args.kwargs["report"]
            self.assertEqual([sent] * count, report["devices"])
        with self.assertRaisesRegex(exception.TooLarge, "report of the host"):
            said = {"devices": [device] * 4000, "observed": None}
            agent_manager_api.report(CREDENTIALS, said)

    def test_large_report_has_all_devices_of_others_or_none(self):
        needed = {"volume_id": "v" * 36, "target": "t" * 60, "path": "/dev/sdb"}
        device = {**needed, "paths": [{"name": "sdb", "state": "active"}] * 8}
        for count, sent in ((100, device), (700, needed), (1024, None)):
            observed = {"devices": [device] * count, "asked": ["a"]}
            own = [{"path": "/dev/sda", "volume_id": "v" * 36}] * (1500 if sent is None else 1)
            agent_manager_api.report(CREDENTIALS, {"devices": own, "observed": observed})
            report = self.client.call.call_args.kwargs["report"]
            expected = sent and {"devices": [sent] * count, "asked": ["a"]}
            self.assertEqual((own, expected), (report["devices"], report["observed"]))

    def test_answer_of_manager_is_returned(self):
        for method in ("report", "desired_state"):
            self.assertIs(self.client.call.return_value, ask(method))

    def test_messaging_errors_become_unavailable(self):
        for trouble in (
            messaging.MessagingTimeout(),
            messaging.MessageUndeliverable(None, "", "", {}),
            messaging.MessageDeliveryFailure(),
        ):
            self.client.call.side_effect = trouble
            for method in MESSAGES:
                with self.assertRaisesRegex(exception.Unavailable, "agent will retry"):
                    ask(method)

    def test_error_of_manager_is_raised_unchanged(self):
        self.client.call.side_effect = exception.InvalidTransition("no")
        with self.assertRaises(exception.InvalidTransition):
            ask("connected")
