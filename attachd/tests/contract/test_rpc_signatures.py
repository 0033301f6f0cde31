# SPDX-License-Identifier: Apache-2.0
"""Compare the two halves of the RPC contract: manager_api and the manager's endpoint.

Processes of two releases may run side by side: each manager has to
understand the API of the other release.  So a change of messages needs a new version.
"""

import hashlib
import inspect
import re
import unittest
from unittest import mock

from oslo_versionedobjects import fixture

from attachd import context, objects
from attachd.manager.endpoint import Endpoint
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api, transport, versions

# The contract of each version.  A change gets a new version: a line in the history at the top
# of manager_api, VERSION, and its fingerprint here.  The old lines stay as they are.
FINGERPRINTS = {
    "1.0": "eb63fc4fb711924a37a9a7c01ad6339e",
}

_HISTORY = re.compile(r"^\* (\d+\.\d+): (.+(?:\n  .+)*)$", re.MULTILINE)


def _sent():
    """Call each function once; return {method: (call or cast, arguments)}."""
    attachment = Attachment(id="a", volume_id="v", volume_host="here@fake#pool")
    volume = Volume(id="v", host="here@fake#pool")
    who = context.RequestContext(project_id="p", overwrite=False)
    client = mock.Mock()
    client.call.return_value = {"connection_info": {}, "mode": "rw"}
    have = {
        "attachment": attachment,
        "volume": volume,
        "connector": {"host": "h"},
        "attachment_ids": ["a"],
        "connection_ids": ["c"],
        "states": ["reserved"],
        "host": "here@fake",
        "hosts": ["here@fake"],
        "denied_rule": "a:rule",
        "prefix": "attachd",
        "level": "DEBUG",
        "reference": {"source-name": "disk"},
        "snapshot_id": "s",
        "volume_id": "v",
        "values": {"project_id": "p"},
    }
    newest = versions.VersionPin(manager_api.VERSION, objects.newest_manifest())
    with (
        mock.patch.object(versions, "get_for_backend", return_value=newest),
        mock.patch.object(versions, "get_for_all_managers", return_value=newest),
        mock.patch.object(transport, "get_client", return_value=client),
        mock.patch.object(transport, "get_fanout_client", return_value=client),
    ):
        for name, function in _functions().items():
            wanted = list(inspect.signature(function).parameters)
            getattr(manager_api, name)(who, *[have[item] for item in wanted[1:]])
    sent = {}
    for kind in ("call", "cast"):
        for (_context, method), arguments in getattr(client, kind).call_args_list:
            sent[method] = (kind, arguments)
    return sent


def _functions():
    return {
        name: function
        for name, function in inspect.getmembers(manager_api, inspect.isfunction)
        if function.__module__ == manager_api.__name__ and not name.startswith("_")
    }


def _methods():
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(Endpoint, inspect.isfunction)
        if not name.startswith("_")
    }


def _contract():
    """Describe all that the two sides have in common."""
    lines = [f"{name}{signature}" for name, signature in sorted(_methods().items())]
    lines += [f"{name}: {kind} {sorted(what)}" for name, (kind, what) in sorted(_sent().items())]
    answer = inspect.get_annotations(manager_api.Connected)
    lines += [f"Connected.{name}: {kind}" for name, kind in sorted(answer.items())]
    hashes = fixture.ObjectVersionChecker(objects.Registry.obj_classes()).get_hashes()
    lines += [f"{name}: {mark}" for name, mark in sorted(hashes.items())]
    return "\n".join(lines)


class SignaturesTest(unittest.TestCase):
    """The endpoint accepts each message."""

    def test_messages_fit_signatures_of_methods(self):
        sent, methods = _sent(), _methods()
        self.assertEqual(set(methods), set(sent))
        for name, (_kind, arguments) in sent.items():
            # As oslo.messaging does it: self and the context, the rest by name.
            methods[name].bind(None, None, **arguments)

    def test_message_with_wrong_argument_is_detected(self):
        with self.assertRaises(TypeError):
            _methods()["detach"].bind(None, None, attachment_id="a", volume="v")

    def test_methods_with_answer_are_called_and_others_cast(self):
        methods = _methods()
        for name, (kind, _arguments) in _sent().items():
            answers = methods[name].return_annotation is not None
            self.assertEqual("call" if answers else "cast", kind, name)

    def test_client_and_endpoint_have_the_same_methods(self):
        self.assertEqual(set(_functions()), set(_methods()))


class VersionTest(unittest.TestCase):
    """The fingerprints of earlier versions are kept."""

    def setUp(self):
        super().setUp()
        self.history = dict(_HISTORY.findall(manager_api.__doc__))

    def test_last_version_of_history_is_the_current_one(self):
        self.assertEqual(manager_api.VERSION, list(self.history)[-1])
        self.assertEqual(manager_api.VERSION, Endpoint.target.version)

    def test_versions_of_history_increase(self):
        numbers = [tuple(map(int, item.split("."))) for item in self.history]
        self.assertEqual(sorted(set(numbers)), numbers)

    def test_history_names_all_methods(self):
        result = set(re.findall(r"\w+", " ".join(self.history.values())))
        self.assertEqual(set(), set(_methods()) - result)

    def test_versions_all_have_fingerprints(self):
        self.assertEqual(set(self.history), set(FINGERPRINTS))

    def test_change_of_contract_requires_new_version(self):
        contract = _contract()
        mark = hashlib.sha256(contract.encode()).hexdigest()[:32]
        self.assertEqual(
            FINGERPRINTS[manager_api.VERSION], mark, f"the contract is now\n{contract}"
        )
