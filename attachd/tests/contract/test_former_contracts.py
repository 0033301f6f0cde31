# SPDX-License-Identifier: Apache-2.0
"""Messages to managers of older releases, and messages of their APIs, are accepted.

The table has the arguments of the endpoints of each release.
"""

from collections.abc import Mapping
import functools
import inspect
import itertools
from typing import Any, ClassVar, NamedTuple
import unittest
from unittest import mock

from attachd import context, exception, objects
from attachd.manager.endpoint import Endpoint
from attachd.objects import Attachment, Volume, serializer
from attachd.rpc import manager_api
from attachd.rpc.versions import IntroducedIn
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override


class Taken(NamedTuple):
    """The arguments of one method."""

    needed: str
    optional: str = ""


# What came with each version: new methods, and methods with other arguments.  A new version of
# the contract gets an entry; the old ones stay as they are.
CAME: Mapping[str, Mapping[str, Taken]] = {
    "1.0": {
        "attach": Taken("attachment_id volume_id connector", "denied_rule key_id"),
        "attach_exclusive": Taken("attachment_id volume_id connector", "denied_rule key_id"),
        "check_attach": Taken("volume_id connector values"),
        "detach": Taken("attachment_id volume_id", "states"),
        "force_detach": Taken("attachment_id volume_id", "states"),
        "finish_move": Taken("attachment_id volume_id"),
        "process_pending": Taken("attachment_id"),
        "initialize_connection": Taken("volume connector", "denied_rule key_id"),
        "terminate_connections": Taken("volume_id connector attachment_ids", "connection_ids"),
        "compare_exports": Taken("volume_id"),
        "compare_volume": Taken("volume_id"),
        "get_persistent_reservation": Taken("volume_id"),
        "create_volume": Taken("volume"),
        "delete_volume": Taken("volume"),
        "extend_volume": Taken("volume"),
        "reimage_volume": Taken("volume"),
        "upload_volume": Taken("volume"),
        "manage_volume": Taken("volume"),
        "unmanage_volume": Taken("volume"),
        "revert_volume": Taken("volume"),
        "create_snapshot": Taken("snapshot_id"),
        "delete_snapshot": Taken("snapshot_id"),
        "list_manageable": Taken(""),
        "list_manageable_snapshots": Taken(""),
        "get_manageable": Taken("reference"),
        "get_manageable_snapshot": Taken("volume_id reference"),
        "set_log_levels": Taken("hosts prefix level"),
        "get_log_levels": Taken("prefix"),
    },
}

LATER = ("check_attach", "compare_exports", "compare_volume", "finish_move", "get_log_levels")
"""Methods that the made-up history introduces in its last version."""

INTRODUCED = {
    "attach": IntroducedIn(arguments={"denied_rule": "1.1", "key_id": "1.2"}),
    "attach_exclusive": IntroducedIn(arguments={"key_id": "1.2"}),
    "initialize_connection": IntroducedIn(arguments={"key_id": "1.2"}),
    "terminate_connections": IntroducedIn(arguments={"connection_ids": "1.2"}),
    **dict.fromkeys(LATER, IntroducedIn("1.2")),
}
"""A history made up for the tests: in which version these had come."""


def _made_up() -> Mapping[str, Mapping[str, Taken]]:
    first = {method: taken for method, taken in CAME["1.0"].items() if method not in LATER}
    for method, since in INTRODUCED.items():
        if method in first:
            known = [
                name for name in first[method].optional.split() if name not in since.arguments
            ]
            first[method] = first[method]._replace(optional=" ".join(known))
    second = {"attach": first["attach"]._replace(optional="denied_rule")}
    return {"1.0": first, "1.1": second, "1.2": CAME["1.0"]}


def methods_of(
    version: str, history: Mapping[str, Mapping[str, Taken]] = CAME
) -> dict[str, Taken]:
    """Return the methods of a manager of this version."""
    known: dict[str, Taken] = {}
    for came, methods in history.items():
        known |= methods
        if came == version:
            return known
    raise KeyError(version)


def understands(taken: Taken, arguments: Mapping[str, Any]) -> bool:
    """Return whether a method with these arguments can be called with those."""
    needed, optional = set(taken.needed.split()), set(taken.optional.split())
    return needed <= set(arguments) <= needed | optional


WHO = context.RequestContext(project_id="p", overwrite=False)
CONNECTOR = {"host": "h"}


def _volume(**values):
    return Volume(id="v", host="here@fake#pool", **values)


def requests():
    """Make every call of manager_api in every way that the API does."""
    attachment = Attachment(id="a", volume_id="v", volume_host="here@fake#pool")
    for attach, denied_rule in itertools.product(
        (manager_api.attach, manager_api.attach_exclusive), ("", "a:rule")
    ):
        yield functools.partial(attach, WHO, attachment, CONNECTOR, denied_rule)
    for values in (None, {"project_id": "p"}):
        yield functools.partial(manager_api.check_attach, WHO, _volume(), CONNECTOR, values)
    for detach, states in itertools.product(
        (manager_api.detach, manager_api.force_detach), (None, ["x"])
    ):
        yield functools.partial(detach, WHO, attachment, states)
    yield functools.partial(manager_api.process_pending, WHO, attachment)
    yield functools.partial(manager_api.finish_move, WHO, attachment)
    for multiattach, rules in ((False, ("",)), (True, ("", "a:rule"))):
        volume = _volume(multiattach=multiattach)
        for denied_rule in rules:
            yield functools.partial(
                manager_api.initialize_connection, WHO, volume, CONNECTOR, denied_rule
            )
        for ids in (None, (), ("c",)):
            close = functools.partial(manager_api.terminate_connections, WHO, volume, CONNECTOR)
            yield functools.partial(close, ("a",), ids)
    works = (
        *(manager_api.create_volume, manager_api.delete_volume, manager_api.extend_volume),
        *(manager_api.manage_volume, manager_api.unmanage_volume, manager_api.revert_volume),
    )
    for work, source in itertools.product(works, (None, "s")):
        yield functools.partial(work, WHO, _volume(source_volid=source))
    yield functools.partial(manager_api.create_snapshot, WHO, "here@fake", "s")
    yield functools.partial(manager_api.delete_snapshot, WHO, "here@fake", "s")
    yield functools.partial(manager_api.list_manageable, WHO, "here@fake")
    yield functools.partial(manager_api.list_manageable_snapshots, WHO, "here@fake")
    yield functools.partial(manager_api.get_manageable, WHO, "here@fake", {"source-name": "disk"})
    yield functools.partial(
        manager_api.get_manageable_snapshot, WHO, "here@fake", "v", {"source-name": "disk"}
    )
    yield functools.partial(manager_api.compare_exports, WHO, _volume())
    yield functools.partial(manager_api.compare_volume, WHO, _volume())
    yield functools.partial(manager_api.get_persistent_reservation, WHO, _volume())
    yield functools.partial(manager_api.set_log_levels, WHO, ["here@fake"], "attachd", "DEBUG")
    yield functools.partial(manager_api.get_log_levels, WHO, "here@fake", "attachd")


class _Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.client, self.made = rpc_clients.patch_clients(self)

    def messages(self):
        """Return the messages that were sent since the last time."""
        sent = [*self.client.call.call_args_list, *self.client.cast.call_args_list]
        self.client.reset_mock()
        return [(method, arguments) for (_context, method), arguments in sent]


class ContractsTest(_Case):
    """The contracts of all releases."""

    history: ClassVar = CAME
    introduced: ClassVar[Mapping[str, IntroducedIn]] = {}
    version = manager_api.VERSION

    def setUp(self):
        super().setUp()
        if self.introduced:
            self.enterContext(
                mock.patch.multiple(manager_api, VERSION=self.version, _INTRODUCED=self.introduced)
            )
            raised = {"1.0": {"Attachment": "1.0", "Volume": "1.0"}}
            raised[self.version] = dict(objects.newest_manifest())
            self.enterContext(mock.patch.object(serializer, "_RAISED", raised))

    def test_message_to_older_manager_is_understood_or_refused(self):
        for version in self.history:
            override(self, "attachd_manager", version, group="upgrade_levels")
            known = methods_of(version, self.history)
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
            self.assertEqual(version == self.version, refused == 0, version)

    def test_message_has_version_and_objects_of_manager(self):
        for version in self.history:
            override(self, "attachd_manager", version, group="upgrade_levels")
            manager_api.delete_volume(WHO, _volume())
            self.made.assert_called_with(
                "here@fake",
                timeout=mock.ANY,
                version=version,
                objects=objects.manifest_of_contract(version),
            )

    def test_message_of_older_api_is_understood(self):
        now = methods_of(self.version, self.history)
        for version in self.history:
            for method, taken in methods_of(version, self.history).items():
                needed, optional = taken.needed.split(), taken.optional.split()
                for count in range(len(optional) + 1):
                    arguments = dict.fromkeys([*needed, *optional[:count]])
                    self.assertTrue(understands(now[method], arguments), (version, method))

    def test_unknown_or_missing_argument_is_not_understood(self):
        taken = Taken("a b", "c")
        for arguments, expected in (("ab", True), ("abc", True), ("a", False), ("abd", False)):
            self.assertEqual(expected, understands(taken, dict.fromkeys(arguments)), arguments)


class MadeUpContractsTest(ContractsTest):
    """The same with a longer, invented history."""

    history: ClassVar = _made_up()
    introduced: ClassVar = INTRODUCED
    version = "1.2"


class NewestContractTest(unittest.TestCase):
    def test_newest_contract_has_the_methods_of_the_endpoint(self):
        """A new version of the contract needs its entry in CAME."""
        found = {}
        for name, method in inspect.getmembers(Endpoint, inspect.isfunction):
            if not name.startswith("_"):
                given = list(inspect.signature(method).parameters.values())[2:]
                needed = [item.name for item in given if item.default is item.empty]
                optional = [item.name for item in given if item.default is not item.empty]
                found[name] = Taken(" ".join(needed), " ".join(optional))
        self.assertEqual(manager_api.VERSION, list(CAME)[-1])
        self.assertEqual(methods_of(manager_api.VERSION), found)
