# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import sys
import unittest
from unittest import mock

from attachd.csi import start


class StartTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch("attachd.process_defaults.end_quietly_on_interrupt"))
        self.enterContext(mock.patch("attachd.process_defaults.use_threads"))

    def _run(self, missing: str) -> str:
        error = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        self.enterContext(mock.patch("importlib.import_module", side_effect=error))
        self.enterContext(mock.patch.object(sys, "argv", ["attachd-csi"]))
        with contextlib.redirect_stderr(io.StringIO()) as output:
            self.assertEqual(1, start.main())
        return output.getvalue()

    def test_missing_library_is_reported_with_extra(self):
        self.assertIn("grpc is missing here: pip install '.[csi]'", self._run("grpc"))

    def test_missing_submodule_is_reported(self):
        self.assertIn("google.protobuf is missing", self._run("google.protobuf"))

    def test_other_missing_module_is_an_error(self):
        with self.assertRaises(ModuleNotFoundError):
            self._run("attachd.nothing")
