# SPDX-License-Identifier: Apache-2.0
"""Compare the documentation with the source tree."""

import ast
import configparser
import importlib
from pathlib import Path
import re
import unittest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "doc/source"
ARCHITECTURE = SOURCE / "contributor/architecture.rst"
_NAMED = re.compile(r"``((?:[\w]+/)*\w+\.py)(?::([\w.]+)(?:\(\))?)?``")
"""A file, and perhaps a name in it: manager/attach.py:attach()."""
_TREE = re.compile(r"^\.\. toctree::\n(?:   :.*\n)*\n((?:   \S+\n)+)", re.MULTILINE)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not SOURCE.is_dir():
            self.skipTest("the documentation is not installed")


class PagesTest(Case):
    def test_pages_are_each_in_one_toctree(self):
        listed = []
        for index in SOURCE.rglob("*.rst"):
            for entries in _TREE.findall(index.read_text(encoding="utf-8") + "\n"):
                for entry in entries.split():
                    page = (index.parent / f"{entry}.rst").resolve()
                    listed.append(page.relative_to(SOURCE.resolve()))
        pages = {
            page.relative_to(SOURCE)
            for page in SOURCE.rglob("*.rst")
            if "_generated" not in page.parts
        }
        self.assertEqual(sorted(pages - {Path("index.rst")}), sorted(listed))


class ConfigurationTest(Case):
    def test_sphinx_configuration_calls_existing_functions(self):
        text = (SOURCE / "conf.py").read_text(encoding="utf-8")
        imported = re.findall(r"(?m)^from (attachd[\w.]*) import (\w+)$", text)
        self.assertTrue(imported)
        for package, name in imported:
            module = importlib.import_module(f"{package}.{name}")
            for function in re.findall(rf"\b{name}\.(\w+)\(", text):
                self.assertTrue(hasattr(module, function), f"{module.__name__}.{function}")

    def test_documentation_has_version_of_package(self):
        for conf in (SOURCE / "conf.py", SOURCE.parents[1] / "api-ref/source/conf.py"):
            text = conf.read_text(encoding="utf-8")
            self.assertIn('version = release = metadata.version("attachd")\n', text)
            self.assertIn("\nopenstackdocs_auto_version = False\n", text)


class ArchitectureTest(Case):
    def setUp(self):
        super().setUp()
        self.text = ARCHITECTURE.read_text(encoding="utf-8")

    def test_layers_match_importlinter_contract(self):
        contracts = configparser.ConfigParser()
        contracts.read(ROOT / ".importlinter", encoding="utf-8")
        checked = contracts["importlinter:contract:layers"]["layers"]
        shown = self.text.split("``tox -e pep8`` checks it:\n\n.. code-block:: text\n\n")[1]
        shown = shown.split("\n\n")[0]
        # A remark follows after two spaces.
        lines = [re.split(r" {2,}", line.strip())[0] for line in shown.splitlines()]
        without = checked.replace("(", "").replace(")", "")
        self.assertEqual([line for line in without.splitlines() if line], lines)

    def test_package_tree_lists_all_packages_and_modules(self):
        tree = self.text.split("   attachd/\n")[1].split("\n\n")[0]
        shown = set(re.findall(r"^     (\w+(?:\.py|/)) ", tree, re.MULTILINE))
        package = ROOT / "attachd"
        expected = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
        expected |= {path.name for path in package.glob("*.py")} - {"__init__.py"}
        self.assertEqual(expected, shown)

    def test_named_files_and_functions_exist(self):
        missing = [
            f"{path}:{name}"
            for path, name in _NAMED.findall(self.text)
            if not _exists(ROOT / "attachd" / path, name)
        ]
        self.assertEqual([], missing)

    def test_tests_that_pages_name_exist(self):
        named = []
        for page in ("admin/threat-model.rst", "contributor/driver-certificates.rst"):
            found = _NAMED.findall((SOURCE / page).read_text(encoding="utf-8"))
            self.assertTrue(found, page)
            named += found
        missing = [
            f"{path}:{name}" for path, name in named if not _exists(ROOT / "attachd" / path, name)
        ]
        self.assertEqual([], missing)

    def test_missing_functions_are_detected(self):
        module = Path(__file__)
        self.assertTrue(_exists(module, "ArchitectureTest.setUp"))
        self.assertTrue(_exists(module, "ROOT"))
        self.assertFalse(_exists(module, "ArchitectureTest.missing"))
        self.assertFalse(_exists(module.with_name("missing.py"), ""))


def _exists(path: Path, name: str) -> bool:
    """Return whether a module exists, and has a function, class, method or constant."""
    if not path.is_file():
        return False
    body = ast.parse(path.read_bytes()).body
    for part in name.split(".") if name else ():
        found = next((node for node in body if part in _defined(node)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {target.id for target in targets if isinstance(target, ast.Name)}
