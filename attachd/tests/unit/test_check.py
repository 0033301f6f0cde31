# SPDX-License-Identifier: Apache-2.0
"""How tests are counted; for whoever changes tools/check.py, whose totals CI believes."""

import contextlib
import importlib.util
import io
import os
from pathlib import Path
import tempfile
import textwrap
import threading
import time
from types import ModuleType
from typing import Any
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
        self.printed = io.StringIO()
        self.enterContext(contextlib.redirect_stdout(self.printed))

    def _write(self, body: str) -> None:
        source = "import unittest\nclass T(unittest.TestCase):\n" + textwrap.indent(body, "    ")
        (self.tests / "test_x.py").write_text(source)

    def _run(self, step: str = "unit", seconds: float = 600) -> Any:
        result = self.check.Result(step)
        self.check.Round(time.time() + seconds).run_step(result)
        return result

    def _count(self, body: str) -> tuple[int, int, int]:
        self._write(body)
        result = self._run()
        return result.passed, result.failed, result.skipped

    def _main(self, *arguments: str) -> int:
        with mock.patch("sys.argv", ["check.py", *arguments]):
            status: int = self.check.main()
        return status

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
                result = self._run("step")
                self.assertEqual((expected, 1 - expected), (result.passed, result.failed))

    def test_what_fails_is_shown_with_its_traceback_and_named_again_at_the_end(self):
        self._write(
            "def test_a(self): self.assertEqual('left', 'right')\ndef test_b(self): pass\n"
        )
        counts = self.top / "counts"
        self.assertEqual(1, self._main("unit", "--counts", str(counts)))
        self.assertEqual("1 passed, 1 failed, 0 skipped\n", counts.read_text())
        said = self.printed.getvalue()
        self.assertIn("AssertionError: 'left' != 'right'", said)
        self.assertEqual("unit: attachd.tests.unit.test_x.T.test_a", said.splitlines()[-1])
        self.assertNotIn("test_b", said)
        self.assertIn("test_b", (self.top / ".cache" / "unit.log").read_text())

    def test_little_is_printed_of_what_says_much(self):
        self._write(
            "def fail_much(self): self.fail('x' * 100000)\n"
            + "".join(f"test_{number} = fail_much\n" for number in range(300))
        )
        self.assertEqual(1, self._main("unit"))
        limits = self.check.SHOWN_TESTS * (self.check.SHOWN_OF_A_TEST + 200)
        self.assertLess(len(self.printed.getvalue()), limits + self.check.SHOWN_NAMES * 100)

    def test_good_runs_end_with_the_table(self):
        self._write("def test_a(self): print('chatter')\n")
        self.assertEqual(0, self._main("unit"))
        self.assertRegex(self.printed.getvalue().splitlines()[-1], "^unit .* 1 ok")
        self.assertNotIn("chatter", self.printed.getvalue())

    def test_what_is_not_done_when_the_time_is_up_is_ended_and_named(self):
        self._write("def test_a(self): pass\ndef test_b(self): import time; time.sleep(600)\n")
        # Enough for the first one, however busy the machine is.
        result = self.check.Result("unit")
        round_ = self.check.Round(time.time() + 600)
        ending = threading.Thread(target=self._end_after_one, args=[round_, result])
        ending.start()
        round_.run_step(result)
        ending.join()
        self.assertEqual(1, result.passed)
        self.assertIn("unit: not done when the time was up", result.wrong)

    @staticmethod
    def _end_after_one(round_, result):
        while not result.passed:
            time.sleep(0.01)
        round_.end()

    def test_steps_that_find_no_time_left_fail(self):
        with mock.patch.dict(self.check.COMMANDS, step=("true",)):
            self.assertEqual(1, self._main("step", "unit", "--until", "0"))
        lines = self.printed.getvalue().splitlines()
        self.assertEqual(["step: true", "unit: not done when the time was up"], lines[-2:])

    def test_all_steps_are_in_the_group_all_once(self):
        steps = list(self.check._steps(["all"]))
        self.assertCountEqual({*self.check.COMMANDS, *self.check.TESTS}, steps)
