# SPDX-License-Identifier: Apache-2.0
"""The two contracts between the service and agents of hosts, both halves of each.

Hosts are upgraded one by one, before or after the service: each release has to understand
the messages of others.  So a change of messages needs a new version.
"""

import hashlib
import inspect
import re
from types import ModuleType
from typing import Any, ClassVar
import unittest
from unittest import mock

from attachd.agent.service import Endpoint
from attachd.context import RequestContext
from attachd.manager.agents.rpc_server import AgentEndpoint
from attachd.rpc import agent_api, agent_manager_api, agent_transport
from attachd.tests.fixtures import fake_agent

CONTEXT = RequestContext(overwrite=False)
CREDENTIALS = agent_manager_api.AgentCredentials("compute-1", "k" * 43, "p" * 32)
REPORT = fake_agent.make_report("compute-1")
RENEWAL: Any = {
    **{name: REPORT[name] for name in ("boot_id", "lease", "machine_id", "token")},
    "content_number": 1,
    "desired": "0" * 64,
}
_HISTORY = re.compile(r"^\* (\d+\.\d+): (.+)$", re.MULTILINE)


class _Contract:
    """The comparison of sender and endpoint.

    :cvar FINGERPRINTS: of each version; a change gets a new one, and the old lines stay
    :cvar SENDING: how each function is called, and what it sends: its kind and its method
    """

    MODULE: ClassVar[ModuleType]
    ENDPOINT: ClassVar[type[Any]]
    VALUES: ClassVar[tuple[type[Any], ...]] = ()
    FINGERPRINTS: ClassVar[dict[str, str]]
    SENDING: ClassVar[dict[str, tuple[str, tuple[Any, ...]]]]

    def sent(self):
        """Call each function once; return {function: (call or cast, method, arguments)}."""
        sent = {}
        for name, (kind, arguments) in self.SENDING.items():
            client = mock.Mock()
            with (
                mock.patch.object(agent_transport, "get_host_client", return_value=client),
                mock.patch.object(agent_transport, "get_registry_client", return_value=client),
            ):
                getattr(self.MODULE, name)(*arguments)
            ((_context, method), said) = getattr(client, kind).call_args
            sent[name] = (kind, method, said)
        return sent

    def methods(self):
        found = inspect.getmembers(self.ENDPOINT, inspect.isfunction)
        return {name: inspect.signature(item) for name, item in found if name[0] != "_"}

    def contract(self):
        """Describe all that the two sides have in common."""
        lines = [f"{name}{signature}" for name, signature in sorted(self.methods().items())]
        lines += [
            f"{name}: {kind} {method} {sorted(said)}"
            for name, (kind, method, said) in sorted(self.sent().items())
        ]
        for value in self.VALUES:
            fields = inspect.get_annotations(value)
            lines += [f"{value.__name__}.{name}: {kind}" for name, kind in sorted(fields.items())]
        return "\n".join(lines)

    def test_functions_of_client_are_all_checked(self):
        functions = inspect.getmembers(self.MODULE, inspect.isfunction)
        ours = {name for name, item in functions if item.__module__ == self.MODULE.__name__}
        self.assertEqual(set(self.SENDING), {name for name in ours if name[0] != "_"})

    def test_messages_fit_signatures_of_methods(self):
        methods, sent = self.methods(), self.sent()
        self.assertEqual(set(methods), {method for _kind, method, _said in sent.values()})
        for _kind, method, said in sent.values():
            # As oslo.messaging does it: self and the context, the rest by name.
            methods[method].bind(None, None, **said)

    def test_message_with_wrong_argument_is_detected(self):
        for signature in self.methods().values():
            with self.assertRaises(TypeError):
                signature.bind(None, None, attachment="a")

    def test_last_version_of_history_is_the_current_one(self):
        history = dict(_HISTORY.findall(self.MODULE.__doc__))
        self.assertEqual(self.MODULE.VERSION, list(history)[-1])
        self.assertEqual(self.MODULE.VERSION, self.ENDPOINT.target.version)
        self.assertEqual(set(history), set(self.FINGERPRINTS))

    def test_history_names_all_methods(self):
        result = set(
            re.findall(r"\w+", " ".join(dict(_HISTORY.findall(self.MODULE.__doc__)).values()))
        )
        self.assertEqual(set(), set(self.methods()) - result)

    def test_change_of_contract_requires_new_version(self):
        contract = self.contract()
        mark = hashlib.sha256(contract.encode()).hexdigest()[:32]
        expected = self.FINGERPRINTS[self.MODULE.VERSION]
        self.assertEqual(expected, mark, f"the contract is now\n{contract}")


class AgentContractTest(_Contract, unittest.TestCase):
    """The contract of agents, called by the service."""

    MODULE: ClassVar = agent_api
    ENDPOINT: ClassVar = Endpoint
    FINGERPRINTS: ClassVar = {
        "1.0": "06adec5123731952cb77e8734952f957",
    }
    SENDING: ClassVar = {
        "reconcile": ("cast", (CONTEXT, "compute-1", "a")),
        "report": ("cast", (CONTEXT, "compute-1", "r" * 32)),
    }


class AgentManagerContractTest(_Contract, unittest.TestCase):
    """The contract of the service, called by agents."""

    MODULE: ClassVar = agent_manager_api
    ENDPOINT: ClassVar = AgentEndpoint
    VALUES: ClassVar = (
        agent_manager_api.Renewal,
        agent_manager_api.DeviceReport,
        agent_manager_api.PathReport,
        agent_manager_api.ObservedDevice,
        agent_manager_api.Observed,
        agent_manager_api.HostReport,
        agent_manager_api.Report,
        agent_manager_api.ReportToken,
        agent_manager_api.DesiredState,
    )
    FINGERPRINTS: ClassVar = {
        "1.0": "1998bde6fdf8604caeeeccb216ac055c",
    }
    SENDING: ClassVar = {
        "report": ("call", (CREDENTIALS, REPORT)),
        "renew": ("call", (CREDENTIALS, RENEWAL)),
        "desired_state": ("call", (CREDENTIALS, "a")),
        "connected": ("call", (CREDENTIALS, "a", 2, "/dev/sdb")),
        "failed": ("call", (CREDENTIALS, "a", 2, "no session")),
        "disconnected": ("call", (CREDENTIALS, "a", 2)),
        "detach_refused": ("call", (CREDENTIALS, "a", 2, "mounted")),
    }
