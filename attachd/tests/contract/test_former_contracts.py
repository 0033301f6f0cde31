# SPDX-License-Identifier: Apache-2.0
"""What is sent to managers of former releases, and what their APIs send: each is understood.

The table is what the endpoints of those releases took, written down when they were.
"""

from collections.abc import Mapping
import functools
import inspect
import itertools
from typing import Any, NamedTuple
import unittest
from unittest import mock

from attachd import context, exception
from attachd.manager.endpoint import Endpoint
from attachd.objects import Attachment, Volume, manifests
from attachd.rpc import manager_api, transport
from attachd.tests.backends import override


class Taken(NamedTuple):
    """The arguments of one method."""

    needed: str
    optional: str = ""


# What came with each version: new methods, and methods with other arguments.  A new version of
# the contract gets an entry; the old ones stay as they are.
CAME: Mapping[str, Mapping[str, Taken]] = {
    "1.0": {
        "attach": Taken("attachment_id volume_id connector"),
        "attach_alone": Taken("attachment_id volume_id connector"),
        "detach": Taken("attachment_id volume_id"),
        "create_volume": Taken("volume"),
        "delete_volume": Taken("volume"),
        "extend_volume": Taken("volume"),
    },
    "1.1": {},
    "1.2": {
        "set_log_levels": Taken("hosts prefix level"),
        "get_log_levels": Taken("prefix"),
    },
    "1.3": {
        "open_connection": Taken("volume connector"),
        "close_connections": Taken("volume_id connector attachment_ids"),
    },
    "1.4": {
        "detach": Taken("attachment_id volume_id", "states"),
        "force_detach": Taken("attachment_id volume_id", "states"),
    },
    "1.5": {
        "close_connections": Taken("volume_id connector attachment_ids", "connection_ids"),
    },
    "1.6": {
        "attach": Taken("attachment_id volume_id connector", "denied"),
        "attach_alone": Taken("attachment_id volume_id connector", "denied"),
        "open_connection": Taken("volume connector", "denied"),
    },
    "1.7": {
        "carry_on": Taken("attachment_id"),
    },
}


def methods_of(version: str) -> dict[str, Taken]:
    """Return all that a manager of this version answers to."""
    known: dict[str, Taken] = {}
    for came, methods in CAME.items():
        known |= methods
        if came == version:
            return known
    raise KeyError(version)


def understands(taken: Taken, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a method with these arguments can be called with those."""
    needed, optional = set(taken.needed.split()), set(taken.optional.split())
    return needed <= set(arguments) <= needed | optional


WHO = context.RequestContext(project_id="p", overwrite=False)
CONNECTOR = {"host": "h"}


def _volume(**values):
    return Volume(id="v", host="here@fake#pool", **values)


def requests():
    """Make every call of manager_api in every way that the API does."""
    attachment = Attachment(id="a", volume_id="v", volume_host="here@fake#pool")
    for attach, denied in itertools.product(
        (manager_api.attach, manager_api.attach_alone), ("", "a:rule")
    ):
        yield functools.partial(attach, WHO, attachment, CONNECTOR, denied)
    for detach, states in itertools.product(
        (manager_api.detach, manager_api.force_detach), (None, ["x"])
    ):
        yield functools.partial(detach, WHO, attachment, states)
    yield functools.partial(manager_api.carry_on, WHO, attachment)
    for multiattach, rules in ((False, ("",)), (True, ("", "a:rule"))):
        volume = _volume(multiattach=multiattach)
        for denied in rules:
            yield functools.partial(manager_api.open_connection, WHO, volume, CONNECTOR, denied)
        for ids in (None, (), ("c",)):
            close = functools.partial(manager_api.close_connections, WHO, volume, CONNECTOR)
            yield functools.partial(close, ("a",), ids)
    works = (manager_api.create_volume, manager_api.delete_volume, manager_api.extend_volume)
    for work, source in itertools.product(works, (None, "s")):
        yield functools.partial(work, WHO, _volume(source_volid=source))
    yield functools.partial(manager_api.set_log_levels, WHO, ["here@fake"], "attachd", "DEBUG")
    yield functools.partial(manager_api.get_log_levels, WHO, "here@fake", "attachd")


class FormerContractsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.client = mock.Mock()
        self.made = self.put("get_client")
        self.put("get_fanout_client")

    def put(self, name):
        patched = mock.patch.object(transport, name, return_value=self.client)
        self.addCleanup(patched.stop)
        return patched.start()

    def messages(self):
        """Return the messages that were sent since the last time."""
        sent = [*self.client.call.call_args_list, *self.client.cast.call_args_list]
        self.client.reset_mock()
        return [(method, arguments) for (_context, method), arguments in sent]

    def test_the_newest_version_is_what_the_endpoint_takes(self):
        """A new version of the contract needs its entry in CAME."""
        found = {}
        for name, method in inspect.getmembers(Endpoint, inspect.isfunction):
            if not name.startswith("_"):
                given = list(inspect.signature(method).parameters.values())[2:]
                needed = [each.name for each in given if each.default is each.empty]
                optional = [each.name for each in given if each.default is not each.empty]
                found[name] = Taken(" ".join(needed), " ".join(optional))
        self.assertEqual(manager_api.VERSION, list(CAME)[-1])
        self.assertEqual(methods_of(manager_api.VERSION), found)

    def test_what_is_sent_to_a_former_manager_is_understood_or_refused_before(self):
        for version in CAME:
            override(self, "attachd_manager", version, group="upgrade_levels")
            known = methods_of(version)
            asked = refused = 0
            for ask in requests():
                asked += 1
                try:
                    ask()
                except exception.Unavailable:
                    refused += 1
                    self.assertEqual([], self.messages())
                    continue
                ((method, arguments),) = self.messages()
                self.assertIn(method, known, version)
                self.assertTrue(understands(known[method], arguments), (version, method))
            self.assertLess(refused, asked)
            self.assertEqual(version == manager_api.VERSION, refused == 0, version)

    def test_messages_say_the_version_and_have_its_objects(self):
        for version in CAME:
            override(self, "attachd_manager", version, group="upgrade_levels")
            manager_api.delete_volume(WHO, _volume())
            self.made.assert_called_with(
                "here@fake",
                timeout=mock.ANY,
                version=version,
                objects=manifests.of_contract(version),
            )

    def test_what_former_apis_send_is_understood(self):
        now = methods_of(manager_api.VERSION)
        for version in CAME:
            for method, taken in methods_of(version).items():
                needed, optional = taken.needed.split(), taken.optional.split()
                for count in range(len(optional) + 1):
                    arguments = dict.fromkeys([*needed, *optional[:count]])
                    self.assertTrue(understands(now[method], arguments), (version, method))

    def test_a_message_that_is_not_understood_would_be_found(self):
        taken = Taken("a b", "c")
        for arguments, expected in (("ab", True), ("abc", True), ("a", False), ("abd", False)):
            self.assertEqual(expected, understands(taken, dict.fromkeys(arguments)), arguments)
