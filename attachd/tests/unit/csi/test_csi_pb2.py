# SPDX-License-Identifier: Apache-2.0
"""The generated messages are those of csi.proto."""

import importlib.util
from pathlib import Path
import re
import unittest

from attachd.csi import csi_pb2
from attachd.tests.fixtures.lifetime import temp_dir

_TOP = Path(__file__).parents[4]
_VERSION = re.compile(r"# Protobuf Python Version: .*|(?m:^    \d+,$)")
"""The version of the compiler, which the test of the lowest versions has another of."""


def _generate(folder: Path) -> None:
    path = _TOP / "tools" / "csi_messages.py"
    spec = importlib.util.spec_from_file_location("csi_messages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(folder)


class MessagesTest(unittest.TestCase):
    maxDiff = None

    def test_generated_files_equal_output_of_tool(self):
        if not (_TOP / "tools").is_dir():
            self.skipTest("needs the sources")
        folder = temp_dir(self)
        _generate(folder)
        for name in ("csi_pb2.py", "csi_pb2.pyi"):
            expected, committed = (
                _VERSION.sub("", (where / name).read_text(encoding="utf-8"))
                for where in (folder, _TOP / "attachd" / "csi")
            )
            self.assertEqual(expected, committed, "Run: python tools/csi_messages.py")

    def test_package_and_services_are_those_of_the_specification(self):
        self.assertEqual("csi.v1", csi_pb2.DESCRIPTOR.package)
        self.assertEqual(
            {"Identity", "Controller", "Node"}, set(csi_pb2.DESCRIPTOR.services_by_name)
        )

    def test_secrets_are_not_read(self):
        fields = [
            field.full_name
            for message in csi_pb2.DESCRIPTOR.message_types_by_name.values()
            for field in message.fields
        ]
        self.assertEqual([], [name for name in fields if "secret" in name])
