# SPDX-License-Identifier: Apache-2.0
"""How tests are counted; for whoever changes tools/check.py, whose totals CI believes."""

import importlib.util
import os
from pathlib import Path
import tempfile
import textwrap
from types import ModuleType
import unittest
from unittest import mock

import attachd

TOP = Path(attachd.__file__).parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", TOP / "tools" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CheckTest(unittest.TestCase):
    """A project of a few lines, counted as the real one is."""

    def setUp(self):
        super().setUp()
        self.check = _load()
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        self.tests = self.top / "attachd" / "tests" / "unit"
        self.tests.mkdir(parents=True)
        for package in (self.tests, *self.tests.parents[:2]):
            (package / "__init__.py").touch()
        # The stand-in for our package is found before an installed one.
        self.enterContext(mock.patch.dict(os.environ, PYTHONPATH=str(self.top)))
        self.enterContext(mock.patch.object(self.check, "TOP", self.top))
        # What a run of the inner project prints is not ours.
        silent = self.enterContext(Path(os.devnull).open("w"))
        popen = self.check.subprocess.Popen
        self.enterContext(
            mock.patch.object(
                self.check.subprocess,
                "Popen",
                lambda *args, **kw: popen(*args, **{"stdout": silent, "stderr": silent, **kw}),
            )
        )
        self.enterContext(mock.patch("builtins.print"))

    def _count(self, body: str) -> tuple[int, int, int]:
        source = "import unittest\nclass T(unittest.TestCase):\n" + textwrap.indent(body, "    ")
        (self.tests / "test_x.py").write_text(source)
        result = self.check._run_tests("unit", [])
        return result.passed, result.failed, result.skipped

    def test_passed_failed_and_skipped_are_told_apart(self):
        counts = self._count(
            "def test_a(self): pass\n"
            "def test_b(self): pass\n"
            "def test_c(self): self.fail()\n"
            "def test_d(self): self.skipTest('why')\n"
        )
        self.assertEqual((2, 1, 1), counts)

    def test_a_module_that_cannot_be_imported_fails(self):
        self.assertEqual((0, 1, 0), self._count("raise RuntimeError\n"))

    def test_a_process_that_dies_fails(self):
        passed, failed, _ = self._count("def test_a(self): import os; os._exit(0)\n")
        self.assertEqual(0, passed)
        self.assertGreaterEqual(failed, 1)

    def test_no_test_at_all_fails(self):
        self.assertEqual((0, 1, 0), self._count("pass\n"))

    def test_an_earlier_run_is_not_counted_again(self):
        self._count("def test_a(self): pass\n")
        self.assertEqual((0, 1, 0), self._count("pass\n"))

    def test_a_command_that_fails_or_is_missing_fails_its_step(self):
        for command, expected in (("true", 1), ("false", 0), ("a-command-nobody-has", 0)):
            with self.subTest(command), mock.patch.dict(self.check.COMMANDS, step=(command,)):
                result = self.check._run_commands("step", [])
                self.assertEqual((expected, 1 - expected), (result.passed, result.failed))
