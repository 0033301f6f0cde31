# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import sys
import types
import unittest
from unittest import mock

from attachd.platforms import extra


class ExtraTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch("attachd.process_defaults.end_quietly_on_interrupt"))
        self.enterContext(mock.patch("attachd.process_defaults.use_threads"))
        self.enterContext(mock.patch.object(sys, "argv", ["program", "--option"]))

    def _run(self, **module):
        with mock.patch("importlib.import_module", **module):
            return extra.run("program", "a.b", "csi", {"grpc", "google"})

    def _report(self, missing):
        error = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        with contextlib.redirect_stderr(io.StringIO()) as output:
            self.assertEqual(1, self._run(side_effect=error))
        return output.getvalue()

    def test_command_gets_words_and_returns_exit_code(self):
        seen = []
        module = types.SimpleNamespace(main=lambda words: seen.append(words) or 2)
        self.assertEqual(2, self._run(return_value=module))
        self.assertEqual([["--option"]], seen)

    def test_missing_library_is_reported_with_extra(self):
        text = self._report("grpc")
        self.assertIn("program: grpc is missing here: pip install '.[csi]'", text)

    def test_missing_submodule_is_reported(self):
        self.assertIn("google.protobuf is missing", self._report("google.protobuf"))

    def test_other_missing_module_is_an_error(self):
        error = ModuleNotFoundError("No module", name="attachd.nothing")
        with self.assertRaises(ModuleNotFoundError):
            self._run(side_effect=error)
