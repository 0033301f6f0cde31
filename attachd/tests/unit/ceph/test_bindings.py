# SPDX-License-Identifier: Apache-2.0
"""Import of the modules of Ceph."""

from pathlib import Path
import sys
import tempfile
import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings


class LoadTest(unittest.TestCase):
    """Environments that have no such modules, and systems that do."""

    def setUp(self):
        super().setUp()
        self.addCleanup(bindings.load.cache_clear)
        bindings.load.cache_clear()
        self.enterContext(mock.patch.dict(sys.modules))
        for name in ("rados", "rbd"):
            sys.modules.pop(name, None)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        packages = mock.patch.object(bindings, "SYSTEM_PACKAGES", f"{self.folder}")
        self.enterContext(packages)
        self.enterContext(mock.patch.object(sys, "path", []))

    def test_modules_of_system_are_imported_without_its_other_packages(self):
        (self.folder / "rados.py").write_text("name = 'rados'")
        (self.folder / "rbd.py").write_text("import rados\nname = rados.name + ' for rbd'")
        (self.folder / "another.py").write_text("")
        self.assertEqual("rados for rbd", bindings.load().rbd.name)
        with self.assertRaises(ModuleNotFoundError):
            __import__("another")

    def test_modules_are_found_without_being_loaded(self):
        self.assertFalse(bindings.is_installed())
        (self.folder / "rados.py").write_text("raise ImportError")
        self.assertFalse(bindings.is_installed())
        (self.folder / "rbd.py").write_text("raise ImportError")
        self.assertTrue(bindings.is_installed())

    def test_missing_module_names_packages(self):
        with self.assertRaises(exception.BackendError) as caught:
            bindings.load()
        self.assertTrue(caught.exception.final)
        self.assertIn("packages python3-rados and python3-rbd", f"{caught.exception}")

    def test_module_without_its_library_names_reason(self):
        (self.folder / "rados.py").write_text("raise ImportError('librados.so.2: no such file')")
        with self.assertRaisesRegex(exception.BackendError, r"librados\.so\.2"):
            bindings.load()
        self.assertNotIn("rados", sys.modules)
