# SPDX-License-Identifier: Apache-2.0
"""Tests of an installation from a source tree without git history."""

import os
from pathlib import Path
import shutil
import sqlite3
import sys
import tempfile
import unittest

import attachd
from attachd.tests.fixtures import processes
from attachd.tests.selection import full_only

TREE = Path(attachd.__file__).parent.parent

# An export has what is committed; what tools leave in a work tree is not.
LEFT_BEHIND = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "cover", "dist", "_generated", "*.sample"
)


@full_only("guides")
class PackagingTest(unittest.TestCase):
    """An installation of its own, used from another folder."""

    root: Path
    site: Path

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (TREE / "setup.cfg").is_file():
            raise unittest.SkipTest("these tests run from a source tree, not as installed")
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        cls.site = cls.root / "site"
        shutil.copytree(TREE, cls.root / "tree", ignore=LEFT_BEHIND)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--no-build-isolation", "--target", str(cls.site), str(cls.root / "tree")]
        processes.check_output(install)

    def _run(self, *command: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.site), "PYTHONWARNINGS": "ignore"}
        return processes.check_output(command, cwd=self.root, env=environment).strip()

    def test_installed_wheel_is_the_copy_that_runs(self):
        origin = self._run(sys.executable, "-c", "import attachd; print(attachd.__file__)")
        self.assertEqual(str(self.site / "attachd" / "__init__.py"), origin)

    def test_installed_entry_points_can_be_loaded(self):
        code = (
            "from importlib import metadata\n"
            "points = metadata.distribution('attachd').entry_points\n"
            "print(len([point.load() for point in points]))"
        )
        self.assertGreaterEqual(int(self._run(sys.executable, "-c", code)), 11)

    def test_installed_migrations_create_a_database(self):
        config, database = self.root / "attachd.conf", self.root / "attachd.sqlite"
        config.write_text(f"[database]\nconnection = sqlite:///{database}\n")
        manage = str(self.site / "bin" / "attachd-manage")
        self._run(sys.executable, manage, "--config-file", str(config), "db", "sync")
        with sqlite3.connect(database) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            self.assertIn(("attachments",), tables.fetchall())
        connection.close()
