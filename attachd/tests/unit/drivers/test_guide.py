# SPDX-License-Identifier: Apache-2.0
"""The example driver of writing-a-driver.rst."""

import json
from pathlib import Path
import textwrap
import unittest
from unittest import mock

import attachd
from attachd import exception
from attachd.drivers import base, command
from attachd.linux import commands
from attachd.tests.contract import backends
from attachd.tests.fixtures import requirements
from attachd.tests.unit.drivers import configured

GUIDE = Path(attachd.__file__).parents[1] / "doc/source/contributor/writing-a-driver.rst"
VOLUME = base.VolumeRef("volume", 1)


def _execute_example(title):
    """Execute the first Python block after a title; return its names."""
    block = GUIDE.read_text().split(title)[1].split(".. code-block:: python\n")[1]
    lines = block.splitlines()
    end = next(n for n, line in enumerate(lines) if line and not line.startswith(" "))
    found = {}
    exec(textwrap.dedent("\n".join(lines[:end])), found)
    return found


class ExampleTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        if not GUIDE.is_file():
            self.skipTest("the documentation is not installed")
        found = _execute_example("A small driver\n")
        self.run_tool = self.enterContext(
            mock.patch.object(
                command, "run", return_value=commands.CommandResult(0, "iqn.x\n", "")
            )
        )
        self.driver = configured.driver(found["BoxDriver"])

    def test_example_driver_methods_can_be_called(self):
        export = base.Export("attachment", {"initiator": "iqn.a"})
        self.driver.setup()
        self.driver.create(VOLUME)
        self.driver.clone(base.VolumeRef("copy", 2), VOLUME)
        info = self.driver.grant(VOLUME, export)
        self.assertEqual("iqn.x", info["data"]["target_iqn"])
        self.driver.extend(VOLUME, 2, [export])
        self.driver.revoke(VOLUME, export, [])
        self.driver.delete(VOLUME)
        pool = json.dumps({"size_gib": 9, "free_gib": 8, "promised_gib": 7})
        self.run_tool.return_value = commands.CommandResult(0, pool, "")
        report = self.driver.get_stats()
        self.assertEqual((9, 8, 7), (report.total_gib, report.free_gib, report.allocated_gib))

    def test_example_driver_revokes_all_except_expected(self):
        listed = [{"volume": VOLUME.id, "mode": "rw", "initiators": ["a", "b"]},
                  {"volume": VOLUME.id, "mode": "ro", "initiators": ["a"]}]  # fmt: skip
        self.run_tool.return_value = commands.CommandResult(0, json.dumps(listed), "")
        staying = base.Export("1", {"initiator": "a"})
        (expected,) = self.driver.expected_exports(VOLUME, [staying])
        self.assertEqual(("rw", {"a"}), (expected.mode, expected.holders))
        self.driver.revoke_all_except(VOLUME, [staying])
        removed = [call.args[0][-2:] for call in self.run_tool.mock_calls[1:]]
        self.assertEqual([["b", "rw"], ["a", "ro"]], removed)
        sizes = [{"name": VOLUME.id, "bytes": 7}]
        self.run_tool.return_value = commands.CommandResult(0, json.dumps(sizes), "")
        self.assertEqual({VOLUME.id: 7}, self.driver.list_volumes())

    def test_example_driver_checks_fencing_only_for_changes(self):
        def refuse():
            raise exception.BackendError("The lease is lost.")

        with base.ownership(refuse):
            self.driver.setup()
            self.assertRaises(exception.BackendError, self.driver.delete, VOLUME)
        self.assertEqual(1, self.run_tool.call_count)

    def test_example_driver_ignores_missing_volume_and_raises_refusal(self):
        self.run_tool.return_value = commands.CommandResult(1, "", "no such volume")
        self.driver.delete(VOLUME)
        with self.assertRaisesRegex(exception.BackendError, "no such volume") as caught:
            self.driver.extend(VOLUME, 2, [])
        self.assertFalse(caught.exception.final)

    def test_example_driver_keeps_shared_initiator(self):
        first, second = base.Export("1", {"initiator": "a"}), base.Export("2", {"initiator": "a"})
        self.driver.revoke(VOLUME, first, [second])
        removed = [call.args[0][-1] for call in self.run_tool.mock_calls]
        self.assertEqual(["ro"], removed)
        keys = {self.driver.connection_key(VOLUME, item) for item in (first, second)}
        self.assertEqual(1, len(keys))

    def test_example_driver_refuses_connector_of_example_backend(self):
        self.enterContext(mock.patch.object(requirements, "require_tool"))
        box = _execute_example("The contract suite\n")["Box"](self)
        self.assertIsInstance(box, backends.Backend)
        for connector in box.unusable_connectors:
            self.assertRaises(exception.InvalidInput, self.driver.check_connector, connector)
            with self.assertRaises(exception.BackendError) as caught:
                self.driver.grant(VOLUME, base.Export("attachment", connector))
            self.assertTrue(caught.exception.final)
        self.assertFalse(self.run_tool.called)
