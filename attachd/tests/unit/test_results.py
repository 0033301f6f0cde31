# SPDX-License-Identifier: Apache-2.0
"""How tests and checks are counted by the commands in tools/."""

import ast
import contextlib
import io
import json
import os
from pathlib import Path
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

import testtools
from testtools import content

import attachd
from attachd.tests import selection, wait
from attachd.tests.fixtures import lifetime, requirements

TOP = Path(attachd.__file__).parent.parent

_CONFIGURATION = "[DEFAULT]\ntest_path=./tests\ntop_dir=./\n"


class ResultsTest(testtools.TestCase):
    """A project of a few lines, counted as the real one is."""

    def setUp(self):
        super().setUp()
        self.results = requirements.import_tool(self, "results")
        self.top = lifetime.temp_dir(self)
        (self.top / "tests").mkdir()
        (self.top / "tests" / "__init__.py").touch()
        (self.top / ".stestr.conf").write_text(_CONFIGURATION)
        self.records = self.top / "records"

    def run_tests(self, body, name="core"):
        source = "import unittest\nclass T(unittest.TestCase):\n" + textwrap.indent(body, "    ")
        (self.top / "tests" / "test_x.py").write_text(source)
        (self.records / name).mkdir(parents=True, exist_ok=True)
        stestr = requirements.require_tool(self, str(Path(sys.executable).parent / "stestr"))
        done = subprocess.run(
            [stestr, "--repo-url", str(self.records / name), "run", "--serial"],
            cwd=self.top,
            capture_output=True,
            timeout=wait.TIMEOUT,
            check=False,
        )
        self.addDetail("stestr", content.text_content(done.stdout.decode() + done.stderr.decode()))
        return done.returncode

    def run_results(self, *arguments):
        """Return what the command prints, and its exit code."""
        totals = self.top / "totals"
        folders = sorted(self.records.glob("*/")) or [self.records]
        words = ["results.py", "--totals", str(totals), *map(str, [*arguments, *folders])]
        printed = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with mock.patch("sys.argv", words), contextlib.redirect_stdout(printed):
            status = self.results.main()
        lines = printed.buffer.getvalue().decode().splitlines()
        self.assertEqual([lines[-1]], totals.read_text().splitlines())
        return lines, status

    def write_tox(self, **environments):
        """Write what tox does for environments with (command, exit code) pairs."""
        content = {
            name: {
                "result": {},
                "test": [{"command": words, "retcode": code} for words, code in commands],
            }
            for name, commands in environments.items()
        }
        content["lab"] = {"installed_packages": []}  # one that was not asked for
        path = self.top / "tox.json"
        path.write_text(json.dumps({"testenvs": content}))
        return path

    def test_passed_failed_and_skipped_tests_are_counted_and_named(self):
        self.run_tests(
            "def test_a(self): pass\n"
            "def test_b(self): print('chatter')\n"
            "def test_c(self): self.fail('too hot')\n"
            "def test_d(self): self.skipTest('no tgtd in /tmp/1')\n"
            "def test_e(self): self.skipTest('no tgtd in /tmp/2')\n"
            "@unittest.expectedFailure\n"
            "def test_f(self): self.fail()\n"
        )
        lines, status = self.run_results()
        self.assertEqual(1, status)
        self.assertEqual("3 passed, 1 failed, 2 skipped", lines[-1])
        self.assertIn("        tests.test_x.T.test_c (fail)", lines)
        self.assertIn("            AssertionError: too hot", lines)
        self.assertIn("     2  no tgtd in /tmp/1", lines)

    def test_good_runs_of_several_repositories_are_added(self):
        self.run_tests("def test_a(self): pass\n", "first")
        self.run_tests("def test_a(self): pass\n", "second")
        self.assertEqual((["2 passed, 0 failed, 0 skipped"], 0), self.run_results())

    def test_module_that_cannot_be_imported_is_a_failure(self):
        code = self.run_tests("raise RuntimeError\n")
        lines, status = self.run_results("--tox", self.write_tox(core=[(["stestr", "run"], code)]))
        self.assertEqual(1, status)
        self.assertRegex(lines[-1], "^0 passed, [12] failed, 0 skipped$")

    def test_process_that_dies_is_a_failure(self):
        self.run_tests("def test_a(self): import os; os._exit(0)\n")
        lines, status = self.run_results()
        self.assertEqual(1, status)
        self.assertRegex(lines[-1], "^0 passed, [12] failed, 0 skipped$")

    def test_run_without_tests_is_a_failure(self):
        self.run_tests("pass\n")
        self.assertEqual(1, self.run_results()[1])

    def test_no_run_at_all_is_a_failure(self):
        lines, status = self.run_results()
        self.assertEqual((1, "0 passed, 1 failed, 0 skipped"), (status, lines[-1]))

    def test_only_the_newest_run_of_a_repository_counts(self):
        self.run_tests("def test_a(self): pass\n")
        self.run_tests("def test_a(self): self.fail()\n")
        self.assertEqual("0 passed, 1 failed, 0 skipped", self.run_results()[0][-1])

    def test_each_command_of_the_checks_counts_and_stestr_by_its_tests(self):
        self.run_tests("def test_a(self): pass\n")
        tox = self.write_tox(
            core=[(["/venv/bin/stestr", "run"], 0)],
            pep8=[(["ruff", "check", "."], 0), (["doc8", "doc"], 1)],
        )
        lines, status = self.run_results("--tox", tox)
        self.assertEqual((1, "2 passed, 1 failed, 0 skipped"), (status, lines[-1]))
        self.assertIn("        pep8: doc8 doc returned 1", lines)

    def test_environment_that_could_not_be_made_is_a_failure(self):
        self.run_tests("def test_a(self): pass\n")
        lines, _status = self.run_results("--tox", self.write_tox(mypy=[]))
        self.assertEqual("1 passed, 1 failed, 0 skipped", lines[-1])

    def test_stestr_that_fails_without_a_failed_test_is_a_failure(self):
        self.run_tests("def test_a(self): pass\n")
        tox = self.write_tox(core=[(["stestr", "run"], 1)])
        self.assertEqual("1 passed, 1 failed, 0 skipped", self.run_results("--tox", tox)[0][-1])


class FullTest(unittest.TestCase):
    """The parts of everything."""

    def setUp(self):
        super().setUp()
        self.full = requirements.import_tool(self, "full")
        folder = lifetime.temp_dir(self)
        self.enterContext(mock.patch.object(self.full, "RECORDS", folder / "full"))

    def run_parts(self, *parts):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            total = self.full.run_all(parts)
        return total, printed.getvalue()

    def test_every_mark_is_a_part_and_every_part_has_a_test(self):
        marks = {
            node.args[0].value
            for path in (TOP / "attachd" / "tests").rglob("*.py")
            for node in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "full_only"
        }
        parts = {part.name for part in self.full.PARTS if rf"\[full,{part.name}\]" in part.command}
        self.assertEqual(parts, marks)

    def test_each_part_has_a_line_with_its_duration(self):
        true, false = (self.full.Part(name, [name]) for name in ("true", "false"))
        total, printed = self.run_parts(true, false)
        self.assertRegex(printed, r"(?m)^true +\d+ s +1 passed, 0 failed, 0 skipped$")
        self.assertRegex(printed, r"(?m)^false +\d+ s +0 passed, 1 failed, 0 skipped$")
        self.assertEqual("1 passed, 1 failed, 0 skipped", str(total))

    def test_part_that_leaves_no_results_is_a_failure(self):
        nowhere = Path("/nonexistent")
        total, _printed = self.run_parts(self.full.Part("x", ["true"], nowhere))
        self.assertEqual(["/nonexistent: no test was run"], total.failed)

    def test_nova_runs_unasked_only_where_its_scripts_are(self):
        names = [part.name for part in self.full.PARTS]
        with mock.patch.dict(os.environ, LAB_NOVA_HOME="/somewhere"):
            self.assertEqual(names, self.full.unasked())
            del os.environ["LAB_NOVA_HOME"]
            self.assertEqual({"nova"}, set(names) - set(self.full.unasked()))

    def test_unknown_part_is_refused(self):
        errors = io.StringIO()
        with (
            mock.patch("sys.argv", ["full.py", "nonesuch"]),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit),
        ):
            self.full.main()
        self.assertIn("no such part: nonesuch", errors.getvalue())


class SelectionTest(unittest.TestCase):
    def test_names_of_long_tests_end_in_their_part(self):
        @selection.full_only("crash")
        class Marked(unittest.TestCase):
            def test_a(self): ...

        class Inherited(Marked): ...

        for case in (Marked, Inherited):
            self.assertTrue(case("test_a").id().endswith(f"{case.__name__}.test_a[full,crash]"))

    def test_class_that_inherits_a_mark_cannot_have_another(self):
        @selection.full_only("crash")
        class Marked(unittest.TestCase): ...

        with self.assertRaisesRegex(TypeError, "Again inherits a mark"):

            @selection.full_only("soak")
            class Again(Marked): ...
